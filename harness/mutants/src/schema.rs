//! All mutants of a file in one text: where code would be replaced, a `match` over the number of the mutant that is on.
//!
//! A mutant's own text is what cargo-mutants would put there, letter for letter. Of operators the whole expression around
//! is repeated, up to where no other operator can bind to it, since an exchanged operator may bind more loosely.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr};

use crate::list::{Genre, Lines, Mutant};

/// Call of the function that says which mutant is on.
const WHICH: &str = "crate::which_mutant()";

/// A file with its mutants, and where each of them stands.
pub struct Schema {
    pub text: String,
    /// Of each mutant that is in the text: its number and its bytes there.
    pub placed: Vec<(usize, Range<usize>)>,
    /// Those that no expression can switch on and off.
    pub left_out: Vec<(usize, LeftOut)>,
}

/// Why a mutant is not in the woven tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeftOut {
    /// It does not compile, for this reason.
    Unviable(String),
    /// It may compile alone, but not beside the code as it is: cargo-mutants has to judge it.
    Apart(String),
}

impl LeftOut {
    fn let_chain() -> Self {
        LeftOut::Unviable("only && joins conditions with let".into())
    }
    fn apart(why: &str) -> Self {
        LeftOut::Apart(why.into())
    }
}

/// Something that the file is changed by.
enum Edit {
    /// These bytes become a choice between alternatives and themselves.
    Choice { range: Range<usize>, alternatives: Vec<(usize, String)> },
    /// A body begins with a return of the mutant's value.
    Return { at: usize, values: Vec<(usize, String)> },
    /// A match arm without a guard is passed over.
    Skip { at: usize, id: usize },
}

impl Edit {
    fn start(&self) -> usize {
        match self {
            Edit::Choice { range, .. } => range.start,
            Edit::Return { at, .. } | Edit::Skip { at, .. } => *at,
        }
    }
}

/// Puts these mutants into the file's text, except those that are `unviable`.
///
/// # Errors
///
/// The text is not Rust.
pub fn build(text: &str, mutants: &[&Mutant], unviable: &BTreeSet<usize>) -> syn::Result<Schema> {
    let file = syn::parse_file(text)?;
    let lines = Lines::of(text);
    let mut left_out = Vec::new();
    let mut pending = Vec::new();
    for mutant in mutants.iter().filter(|m| !unviable.contains(&m.id)) {
        match (lines.offset(mutant.span.start), lines.offset(mutant.span.end)) {
            (Some(start), Some(end)) => pending.push(Pending { mutant, range: start..end, taken: false }),
            _ => left_out.push((mutant.id, LeftOut::apart("its place is not in the file"))),
        }
    }
    let mut finder = Finder { text, pending, edits: Vec::new(), left_out, in_let_chain: false };
    finder.visit_file(&file);
    let Finder { pending, mut edits, mut left_out, .. } = finder;
    left_out.extend(
        pending.iter().filter(|p| !p.taken).map(|p| (p.mutant.id, LeftOut::apart("no expression was found for it"))),
    );
    // Outer ones first; at the same place an insertion comes before what follows it.
    edits.sort_by_key(|edit| match edit {
        Edit::Choice { range, .. } => (range.start, 1, usize::MAX - range.end),
        other => (other.start(), 0, 0),
    });
    let mut writer = Writer { text, out: String::new(), placed: Vec::new() };
    writer.write(0..text.len(), &edits);
    Ok(Schema { text: writer.out, placed: writer.placed, left_out })
}

struct Pending<'a> {
    mutant: &'a Mutant,
    range: Range<usize>,
    taken: bool,
}

struct Finder<'a> {
    text: &'a str,
    pending: Vec<Pending<'a>>,
    edits: Vec<Edit>,
    left_out: Vec<(usize, LeftOut)>,
    /// The visit is among the `&&` of a condition with `let`, which is no expression.
    in_let_chain: bool,
}

impl Finder<'_> {
    /// Takes the mutants of a kind that a test of their bytes picks: number, bytes, replacement.
    fn take(&mut self, genre: Genre, picks: impl Fn(&Range<usize>) -> bool) -> Vec<(usize, Range<usize>, String)> {
        let chosen = self.pending.iter_mut().filter(|p| !p.taken && p.mutant.genre == genre && picks(&p.range));
        chosen
            .map(|p| {
                p.taken = true;
                (p.mutant.id, p.range.clone(), p.mutant.replacement.clone())
            })
            .collect()
    }

    /// The bytes of `whole` with `part` replaced.
    fn with(&self, whole: &Range<usize>, part: &Range<usize>, replacement: &str) -> String {
        [&self.text[whole.start..part.start], replacement, &self.text[part.end..whole.end]].concat()
    }

    fn choose(&mut self, whole: Range<usize>, taken: Vec<(usize, Range<usize>, String)>) {
        if !taken.is_empty() {
            let alternatives = taken.iter().map(|(id, part, to)| (*id, self.with(&whole, part, to))).collect();
            self.edits.push(Edit::Choice { range: whole, alternatives });
        }
    }

    /// What is computed when the crate is built cannot ask which mutant is on.
    fn constant(&mut self, whole: Range<usize>) {
        for p in self.pending.iter_mut().filter(|p| whole.start <= p.range.start && p.range.end <= whole.end) {
            p.taken = true;
            self.left_out.push((p.mutant.id, LeftOut::apart("it changes a constant")));
        }
    }

    fn body(&mut self, output: &syn::ReturnType, block: &syn::Block) {
        let (Some(first), Some(last)) = (block.stmts.first(), block.stmts.last()) else { return };
        let body = first.span().byte_range().start..last.span().byte_range().end;
        let taken = self.take(Genre::FnValue, |range| *range == body);
        if matches!(output, syn::ReturnType::Type(_, of) if matches!(**of, syn::Type::ImplTrait(_))) {
            let why = || LeftOut::apart("a function returns one type only");
            self.left_out.extend(taken.into_iter().map(|(id, ..)| (id, why())));
        } else if !taken.is_empty() {
            let values = taken.into_iter().map(|(id, _, value)| (id, value)).collect();
            self.edits.push(Edit::Return { at: block.brace_token.span.open().byte_range().end, values });
        }
    }

    /// The operators of an expression, down to where brackets, calls or blocks begin.
    fn operators(expr: &Expr, into: &mut Vec<Range<usize>>) {
        match expr {
            Expr::Binary(binary) => {
                into.push(binary.op.span().byte_range());
                Self::operators(&binary.left, into);
                Self::operators(&binary.right, into);
            }
            Expr::Unary(unary) => Self::operators(&unary.expr, into),
            Expr::Cast(cast) => Self::operators(&cast.expr, into),
            _ => {}
        }
    }
}

/// Is there a `let` among what `&&` joins?
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.constant(item.span().byte_range());
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.constant(item.span().byte_range());
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.constant(item.span().byte_range());
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.body(&item.sig.output, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.body(&item.sig.output, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(&item.sig.output, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        let whole = binary.span().byte_range();
        if has_let(&binary.left) || has_let(&binary.right) {
            let op = binary.op.span().byte_range();
            for (id, ..) in self.take(Genre::BinaryOperator, |range| *range == op) {
                self.left_out.push((id, LeftOut::let_chain()));
            }
            let before = std::mem::replace(&mut self.in_let_chain, true);
            self.visit_expr(&binary.left);
            self.visit_expr(&binary.right);
            self.in_let_chain = before;
            return;
        }
        if self.in_let_chain && matches!(binary.op, BinOp::And(_)) {
            let op = binary.op.span().byte_range();
            for (id, ..) in self.take(Genre::BinaryOperator, |range| *range == op) {
                self.left_out.push((id, LeftOut::let_chain()));
            }
        } else {
            let mut operators = Vec::new();
            operators.push(binary.op.span().byte_range());
            Self::operators(&binary.left, &mut operators);
            Self::operators(&binary.right, &mut operators);
            let taken = self.take(Genre::BinaryOperator, |range| operators.contains(range));
            self.choose(whole, taken);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        let op = unary.op.span().byte_range();
        let taken = self.take(Genre::UnaryOperator, |range| *range == op);
        self.choose(unary.span().byte_range(), taken);
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_struct(&mut self, literal: &'ast syn::ExprStruct) {
        let whole = literal.span().byte_range();
        let fields: Vec<usize> = literal.fields.iter().map(|field| field.span().byte_range().start).collect();
        let taken = self.take(Genre::StructField, |range| fields.contains(&range.start));
        self.choose(whole, taken);
        visit::visit_expr_struct(self, literal);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        let rest = |arm: &syn::Arm| arm.guard.is_none() && matches!(arm.pat, syn::Pat::Wild(_));
        if !expr.arms.iter().any(rest) {
            // cargo-mutants takes `_ if ...` for an arm that catches the rest.
            let arms: Vec<_> = expr.arms.iter().map(|arm| arm.span().byte_range()).collect();
            let taken = self.take(Genre::MatchArm, |range| arms.contains(range));
            let why = || LeftOut::Unviable("no arm would be left for it".into());
            self.left_out.extend(taken.into_iter().map(|(id, ..)| (id, why())));
        }
        visit::visit_expr_match(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let whole = arm.span().byte_range();
        for (id, ..) in self.take(Genre::MatchArm, |range| *range == whole) {
            self.edits.push(Edit::Skip { at: arm.pat.span().byte_range().end, id });
        }
        if let Some((_, guard)) = &arm.guard {
            let guard = guard.span().byte_range();
            let taken = self.take(Genre::MatchArmGuard, |range| *range == guard);
            self.choose(guard, taken);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        // Inside of anything but `&&`, a condition with let is over.
        let chained = self.in_let_chain && matches!(expr, Expr::Binary(b) if matches!(b.op, BinOp::And(_)));
        let before = std::mem::replace(&mut self.in_let_chain, chained);
        visit::visit_expr(self, expr);
        self.in_let_chain = before;
    }
}

struct Writer<'a> {
    text: &'a str,
    out: String,
    placed: Vec<(usize, Range<usize>)>,
}

impl Writer<'_> {
    /// Each on a line of its own, so that what the compiler says of it names it.
    fn alternative(&mut self, id: usize, opening: &str, text: &str, closing: &str) {
        self.out.push('\n');
        let start = self.out.len();
        self.out.push_str(opening);
        self.out.push_str(text);
        self.out.push('\n');
        self.out.push_str(closing);
        self.placed.push((id, start..self.out.len()));
    }

    /// Writes these bytes with the edits inside of them, which are sorted.
    fn write(&mut self, range: Range<usize>, edits: &[Edit]) {
        let mut at = range.start;
        let mut n = 0;
        while n < edits.len() {
            let edit = &edits[n];
            self.out.push_str(&self.text[at..edit.start()]);
            at = edit.start();
            n += 1;
            match edit {
                Edit::Return { values, .. } => {
                    for (id, value) in values {
                        self.alternative(*id, &format!("if {WHICH} == {id} {{ return "), value, "; }");
                    }
                    self.out.push('\n');
                }
                Edit::Skip { id, .. } => self.alternative(*id, "if", &format!(" {WHICH} != {id}"), ""),
                Edit::Choice { range, alternatives } => {
                    let inner = edits[n..].iter().take_while(|e| e.start() < range.end).count();
                    self.out.push_str(&format!("(match {WHICH} {{"));
                    for (id, text) in alternatives {
                        self.alternative(*id, &format!("{id} => {{ "), text, "}");
                    }
                    self.out.push_str("\n_ => { ");
                    self.write(range.clone(), &edits[n..n + inner]);
                    self.out.push_str("\n} })");
                    at = range.end;
                    n += inner;
                }
            }
        }
        self.out.push_str(&self.text[at..range.end]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::{Position, Span};

    /// A mutant of the `n`-th place where this text stands.
    fn mutant(text: &str, id: usize, genre: Genre, (found, n): (&str, usize), replacement: &str) -> Mutant {
        let start = text.match_indices(found).nth(n).expect("it stands there").0;
        let position = |offset: usize| {
            let line = text[..offset].matches('\n').count() + 1;
            let column = text[..offset].chars().rev().take_while(|c| *c != '\n').count() + 1;
            Position { line, column }
        };
        let span = Span { start: position(start), end: position(start + found.len()) };
        let replacement = replacement.to_owned();
        Mutant { id, name: String::new(), package: String::new(), file: String::new(), genre, replacement, span }
    }
    /// The text with its mutants, without line breaks and with `which` for the call.
    fn woven(text: &str, mutants: &[Mutant]) -> String {
        let schema = build(text, &mutants.iter().collect::<Vec<_>>(), &BTreeSet::new()).expect("Rust");
        assert_eq!(schema.left_out, []);
        syn::parse_file(&schema.text).expect("still Rust");
        for (id, bytes) in &schema.placed {
            assert!(schema.text[bytes.clone()].contains(&id.to_string()), "{id} stands where it is said to");
        }
        schema.text.replace(WHICH, "which").replace('\n', "")
    }

    #[test]
    fn an_exchanged_operator_binds_as_it_would_in_the_text() {
        let text = "fn f() -> bool { a && b && c }";
        let mutants = [mutant(text, 7, Genre::BinaryOperator, ("&&", 1), "||")];
        assert_eq!(woven(text, &mutants), "fn f() -> bool { (match which {7 => { a && b || c}_ => { a && b && c} }) }");
        let text = "fn f() -> bool { a && b || c == d }";
        let mutants = [
            mutant(text, 1, Genre::BinaryOperator, ("&&", 0), "||"),
            mutant(text, 2, Genre::BinaryOperator, ("==", 0), "!="),
        ];
        assert_eq!(
            woven(text, &mutants),
            "fn f() -> bool { (match which {1 => { a || b || c == d}2 => { a && b || c != d}_ => { a && b || c == d} }) }"
        );
    }

    #[test]
    fn one_mutant_stands_inside_of_what_another_leaves_alone() {
        let text = "fn f() -> bool { !a && (b == c) }";
        let mutants = [
            mutant(text, 1, Genre::UnaryOperator, ("!", 0), ""),
            mutant(text, 2, Genre::BinaryOperator, ("==", 0), "!="),
            mutant(text, 3, Genre::FnValue, ("!a && (b == c)", 0), "true"),
        ];
        assert_eq!(
            woven(text, &mutants),
            "fn f() -> bool {if which == 3 { return true; } (match which {1 => { a}_ => { !a} }) && \
             ((match which {2 => { b != c}_ => { b == c} })) }"
        );
    }

    #[test]
    fn arms_are_passed_over_and_guards_and_fields_replaced() {
        let text = "fn f() { match x { A => 1, B if c => 2, _ => 3 }; S { a: 1, ..d } }";
        let mutants = [
            mutant(text, 1, Genre::MatchArm, ("A => 1,", 0), ""),
            mutant(text, 2, Genre::MatchArmGuard, ("c", 1), "true"),
            mutant(text, 3, Genre::StructField, ("a: 1,", 0), ""),
        ];
        // The arm's own comma belongs to it, and c stands in "match" too.
        assert_eq!(
            woven(text, &mutants),
            "fn f() { match x { Aif which != 1 => 1, B if (match which {2 => { true}_ => { c} }) => 2, _ => 3 }; \
             (match which {3 => { S {  ..d }}_ => { S { a: 1, ..d }} }) }"
        );
    }

    #[test]
    fn an_arm_is_not_deleted_from_a_match_whose_other_arms_all_have_guards() {
        let text = "fn f() { match x { A => 1, _ if c => 2 } }";
        let arm = mutant(text, 1, Genre::MatchArm, ("A => 1,", 0), "");
        let schema = build(text, &[&arm], &BTreeSet::new()).expect("Rust");
        assert!(matches!(&schema.left_out[..], [(1, LeftOut::Unviable(_))]));
        assert_eq!(schema.text, text);
    }

    #[test]
    fn what_no_expression_can_switch_on_is_left_out() {
        let text = "fn f() { if let A = b && c == d && e {} }";
        let and = mutant(text, 1, Genre::BinaryOperator, ("&&", 1), "||");
        let eq = mutant(text, 2, Genre::BinaryOperator, ("==", 0), "!=");
        let schema = build(text, &[&and, &eq], &BTreeSet::new()).expect("Rust");
        assert_eq!(schema.left_out, [(1, LeftOut::let_chain())]);
        assert_eq!(schema.placed.len(), 1);
        assert!(build(text, &[&eq], &BTreeSet::from([2])).expect("Rust").placed.is_empty());

        let text = "const C: u32 = 2 * 3; fn f() -> impl Iterator<Item = u32> { g() }";
        let star = mutant(text, 1, Genre::BinaryOperator, ("*", 0), "+");
        let value = mutant(text, 2, Genre::FnValue, ("g()", 0), "::std::iter::empty()");
        let schema = build(text, &[&star, &value], &BTreeSet::new()).expect("Rust");
        assert!(matches!(&schema.left_out[..], [(1, LeftOut::Apart(_)), (2, LeftOut::Apart(_))]));
        assert_eq!(schema.text, text);
    }
}
