//! Where in an object a rule looks, spelt only when there is something to say.

use std::fmt;

/// A way from the root of an object to a value in it. Costs nothing until it is printed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    Root,
    Member(&'a Path<'a>, &'a str),
    Element(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub(crate) fn member(&'a self, name: &'a str) -> Path<'a> {
        Path::Member(self, name)
    }

    pub(crate) fn element(&'a self, at: usize) -> Path<'a> {
        Path::Element(self, at)
    }
}

/// `spec.containers[0].name`.
impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Member(Path::Root, name) => f.write_str(name),
            Path::Member(parent, name) => write!(f, "{parent}.{name}"),
            Path::Element(parent, at) => write!(f, "{parent}[{at}]"),
        }
    }
}
