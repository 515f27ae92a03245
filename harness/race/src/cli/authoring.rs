//! `new`, `check`, `fmt`: writing scenarios.
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::output::{Output, complain, note};
use super::{BAD_INPUT, Kind};
use crate::catalogue;
use crate::mistake::{BadInput, Mistake};
use crate::scenario::lint::lint;
use crate::scenario::schema::MODELINE;
use crate::scenario::yaml::Node;
use crate::scenario::{Scenario, layout, verbs};
use crate::system::{Cluster, System};

#[derive(Args)]
pub(super) struct NewArgs {
    /// Its name: a-z, 0-9 and `-`; or a path that ends in NAME.yaml.
    #[arg(value_name = "NAME")]
    name: PathBuf,
}

#[derive(Args)]
pub(super) struct CheckArgs {
    /// Scenario files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Say nothing of what is in order.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Args)]
pub(super) struct FmtArgs {
    /// Scenario files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write nothing; exit with 1 if a file is not in the usual form.
    #[arg(long)]
    check: bool,
}

pub(super) fn new(system: &dyn System, args: &NewArgs, output: &mut Output) -> Result<u8, BadInput> {
    let path = match args.name.extension() {
        Some(_) => args.name.clone(),
        None => args.name.with_extension("yaml"),
    };
    let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Err(BadInput::new(format!("expected a name of a-z, 0-9 and `-`, found `{name}`")));
    }
    let Some(text) = template(system, &name) else {
        return Err(BadInput::new("the system has no scenario to start from"));
    };
    let cannot = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            BadInput::new(format!("{} is there already", path.display())).help("choose another name")
        }
        _ => BadInput::new(format!("{} cannot be written: {e}", path.display())),
    };
    let mut file = std::fs::File::create_new(&path).map_err(cannot)?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(cannot)?;
    let schema = path.with_file_name("scenario.schema.json");
    let path = path.display();
    output.line(format!("wrote {path}"));
    output.line(format!("  photofinish run {path}                 # it holds"));
    output.line(format!("  photofinish run {path} --as-reported   # and can fail"));
    output.line(format!("  photofinish check {path}"));
    output.line("  photofinish properties                       # what `check` may name");
    if !schema.exists() {
        output.line(format!("  photofinish schema scenario > {}   # an editor then knows the words", schema.display()));
    }
    Ok(0)
}

/// The system's first built-in scenario under another name, with a line on each step that there is.
fn template(system: &dyn System, name: &str) -> Option<String> {
    let builtin = system.template()?;
    let mut text = format!(
        "{MODELINE}\n# {name}: what to race, in the words of a bug report. Change it step by step, and run it after each.\n"
    );
    for line in builtin.text.lines().filter(|l| !l.starts_with('#')) {
        text += &match line.split_once(':') {
            Some(("scenario", _)) => format!("scenario: {name}"),
            Some(("reports", _)) => "# reports: [owner/project#1]".to_owned(),
            Some(("summary", _)) => {
                format!(
                    "# One sentence: what comes when nobody reckons with it.\nsummary: As {}, to be changed.",
                    builtin.name
                )
            }
            Some(("cluster", _)) => {
                format!("# Where; the first value of each is the usual one: {}.\n{line}", options(system))
            }
            Some(("also", _)) => format!("# The same in other clusters as well: {name}@shared and so on.\n{line}"),
            Some(("steps", _)) => {
                format!("# What happens, in order; every step there is stands at the end of this file.\n{line}")
            }
            Some(("check", _)) => format!("# What must hold; each needs something to judge in this run.\n{line}"),
            Some(("fails-without", _)) => {
                format!("# How it can fail: without these fixes, exactly these properties are violated.\n{line}")
            }
            Some(("closed-by", _)) => format!("# Each of these fixes alone, or set of them in [], closes it.\n{line}"),
            _ => line.to_owned(),
        };
        text.push('\n');
    }
    text += "\n# Steps:\n";
    for verb in verbs::GENERIC.iter().chain(system.verbs()) {
        text += &format!("#   {}\n#       {}\n", verb.usage, verb.sentence);
    }
    let usual = Cluster::new(system.cluster_options());
    for (what, names) in [("HOST", system.hosts(&usual)), ("watch: CLIENT/PLURAL", system.streams(&usual))] {
        if !names.is_empty() {
            text += &format!("\n# {what} is one of: {}\n", names.join(", "));
        }
    }
    Some(text)
}

fn options(system: &dyn System) -> String {
    let options = system.cluster_options();
    options.iter().map(|o| format!("{} ({})", o.name, o.values.join(", "))).collect::<Vec<_>>().join("; ")
}

pub(super) fn check(system: &dyn System, args: &CheckArgs, output: &mut Output) -> u8 {
    let mut code = 0;
    for path in &args.files {
        match catalogue::file(system, path) {
            Ok(scenarios) => {
                let found = in_vain(system, &scenarios);
                if found.is_empty() && !args.quiet {
                    let names: Vec<&str> = scenarios.iter().map(|s| s.name.as_str()).collect();
                    let (kind, steps) = scenarios.first().map_or((Kind::Unproven, 0), |s| (s.kind, s.steps.len()));
                    output.line(format!("ok  {path}  {} ({kind}, {steps} steps)", names.join(", ")));
                }
                for bad in found {
                    complain(&bad);
                    code = BAD_INPUT;
                }
            }
            Err(bad) => {
                complain(&bad);
                code = BAD_INPUT;
            }
        }
    }
    code
}

/// What the file's scenarios do in vain, each once.
fn in_vain(system: &dyn System, scenarios: &[Arc<Scenario>]) -> Vec<BadInput> {
    let mut found: Vec<Mistake> = Vec::new();
    for scenario in scenarios {
        // It was read a moment ago: it is YAML.
        let Ok(root) = Node::read(&scenario.source.text) else { continue };
        for mistake in lint(scenario, &root).into_iter().chain(system.lint(scenario, &root)) {
            if !found.iter().any(|m| m.at == mistake.at) {
                found.push(mistake);
            }
        }
    }
    let Some(first) = scenarios.first() else { return Vec::new() };
    found.into_iter().map(|m| m.within(&first.source.path, &first.source.text)).collect()
}

pub(super) fn fmt(args: &FmtArgs, output: &mut Output) -> u8 {
    let mut code = 0;
    for path in &args.files {
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) => {
                complain(&BadInput::new(format!("{name} cannot be read: {e}")));
                code = BAD_INPUT;
                continue;
            }
        };
        match layout::laid_out(&text) {
            Ok(laid_out) if laid_out == text => {}
            Ok(_) if args.check => {
                output.line(format!("not in the usual form: {name}"));
                code = code.max(1);
            }
            Ok(laid_out) => match std::fs::write(path, laid_out) {
                Ok(()) => _ = output.line(format!("laid out: {name}")),
                Err(e) => {
                    note(format!("error: {name} cannot be written: {e}"));
                    code = BAD_INPUT;
                }
            },
            Err(mistake) => {
                complain(&mistake.within(&name, &text));
                code = BAD_INPUT;
            }
        }
    }
    code
}
