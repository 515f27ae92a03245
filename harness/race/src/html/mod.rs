//! Runs as one web page that needs nothing but itself: no network, no server, opened from disk.
//!
//! The data of a page is made here, by pure functions from traces; what draws it is written by hand, in `page.html`,
//! `style.css` and the scripts beside them. A page holds one section a run, and an index if there are several.
use serde::Serialize;

use crate::outcome::Outcome;
use crate::report;

mod arrows;
pub(crate) mod bars;
mod belief;
pub(crate) mod lanes;
mod objects;
mod strings;
mod sweep;
mod timeline;

pub use sweep::{Found, Swept};
pub use timeline::Told;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
/// In the order in which they build on each other.
const SCRIPTS: [&str; 7] = [
    include_str!("data.js"),
    include_str!("scale.js"),
    include_str!("draw.js"),
    include_str!("details.js"),
    include_str!("list.js"),
    include_str!("sweep.js"),
    include_str!("main.js"),
];

/// A page is still fluent, and of a size that can be sent by mail, with this many entries.
const ENTRIES_LIMIT: usize = 40_000;

/// A page in the making.
pub struct Page {
    title: String,
    remarks: Vec<String>,
    beside: bool,
    index: Vec<Listed>,
    sections: Vec<String>,
    entries: usize,
    /// The data of the sweep that the runs are of.
    sweep: Option<String>,
}

/// What stands above the runs.
#[derive(Serialize)]
struct Index<'p> {
    remarks: &'p [String],
    beside: bool,
    runs: &'p [Listed],
}

/// A run in the index.
#[derive(Serialize)]
struct Listed {
    name: String,
    run_id: String,
    outcome: &'static str,
    time: String,
    property: Option<String>,
    /// The position of its section, if it is drawn.
    section: Option<usize>,
}

impl Page {
    /// A page without runs.
    pub fn new(title: impl Into<String>) -> Page {
        Page {
            title: title.into(),
            remarks: Vec::new(),
            beside: false,
            index: Vec::new(),
            sections: Vec::new(),
            entries: 0,
            sweep: None,
        }
    }
    /// Adds a line above the runs.
    pub fn remark(&mut self, text: impl Into<String>) {
        self.remarks.push(text.into());
    }
    /// Shows the first two runs side by side, not one at a time.
    pub fn side_by_side(&mut self) {
        self.beside = true;
    }
    /// The runs are what this sweep found: it stands above them.
    pub fn sweep(&mut self, swept: &Swept<'_>) {
        self.sweep = Some(embed(&sweep::Sweep::of(swept)));
    }
    /// Adds a run. It is listed in any case, and drawn while there is room: then in the section that is returned.
    pub fn add(&mut self, told: &Told<'_>) -> Option<usize> {
        let fits = self.sections.is_empty() || self.entries + told.entries.len() <= ENTRIES_LIMIT;
        let section = (fits && !told.entries.is_empty()).then(|| {
            self.entries += told.entries.len();
            self.sections.push(embed(&timeline::Timeline::of(told)));
            self.sections.len() - 1
        });
        let report = told.report;
        self.index.push(Listed {
            name: told.name.clone(),
            run_id: told.run_id.clone(),
            outcome: report.outcome.name(),
            time: report::time(report.virtual_ns),
            property: report.property().filter(|_| report.outcome != Outcome::Holds).map(str::to_owned),
            section,
        });
        section
    }
    /// Runs so far.
    pub fn runs(&self) -> usize {
        self.index.len()
    }
    /// The page's text.
    pub fn finish(&self) -> String {
        let sections = self.sections.iter().enumerate();
        let data: String = sections
            .map(|(n, json)| format!("<script type=\"application/json\" id=\"run-{n}\">{json}</script>\n"))
            .collect();
        let index =
            embed(&Index { remarks: &self.remarks, beside: self.beside && self.sections.len() > 1, runs: &self.index });
        let index = format!("<script type=\"application/json\" id=\"index\">{index}</script>\n");
        let sweep =
            self.sweep.iter().map(|sweep| format!("<script type=\"application/json\" id=\"swept\">{sweep}</script>\n"));
        let index = index + &sweep.collect::<String>();
        fill(
            PAGE,
            &[
                ("title", &escaped(&self.title)),
                ("style", STYLE),
                ("data", &(index + &data)),
                ("script", &SCRIPTS.concat()),
            ],
        )
    }
}

/// Puts the parts in the places of a template, `{{name}}`. What is put in is not looked at again.
fn fill(template: &str, parts: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").expect("every place of the template is closed");
        let part = parts.iter().find(|(n, _)| *n == name).expect("the template names known parts");
        out.push_str(before);
        out.push_str(part.1);
        rest = after;
    }
    out + rest
}

/// JSON that may stand within a `script` element: nothing in it ends the element or begins a comment.
fn embed(data: &impl Serialize) -> String {
    let json = serde_json::to_string(data).expect("a page's data is plain data");
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// Text within HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
