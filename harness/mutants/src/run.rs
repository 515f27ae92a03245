//! Runs test programs against one mutant after the other, and stops at the first test that fails.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::BoxError;
use crate::schema::LeftOut;
use crate::weave::{SWITCH, Woven};

/// A built test program.
#[derive(Clone, Debug)]
pub struct Program {
    pub package: String,
    /// `lib`, or the name of the test target.
    pub target: String,
    pub executable: PathBuf,
    /// Where cargo would run it.
    pub folder: PathBuf,
    /// How long it may take.
    pub limit: Duration,
    /// Which of its tests are run.
    pub only: Only,
}

/// A choice among the tests of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Only {
    /// All of them.
    All,
    /// Those of the module that the mutant is in: they notice most, in no time.
    ItsModule,
    /// Those whose names have this in them.
    Named(String),
}

impl Only {
    /// What `PACKAGE:TARGET@CHOICE` says behind the `@`.
    pub fn read(choice: Option<&str>) -> Self {
        match choice {
            None => Only::All,
            Some("module") => Only::ItsModule,
            Some(name) => Only::Named(name.to_owned()),
        }
    }

    /// The filter for a mutant of this file.
    fn filter(&self, file: &str) -> Option<String> {
        match self {
            Only::All => None,
            Only::ItsModule => {
                let (_, path) = file.split_once("src/").unwrap_or(("", file));
                Some(path.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::") + "::")
            }
            Only::Named(name) => Some(name.clone()),
        }
    }
}

/// What the tests say of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Caught,
    Missed,
    Timeout,
    Unviable,
    /// Not run here: cargo-mutants has to judge it.
    Apart,
}

/// One line of the results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub id: usize,
    pub name: String,
    pub verdict: Verdict,
    /// The test that failed, or the program that did not end, or the compiler's message.
    pub by: String,
    pub seconds: f64,
}

#[derive(Deserialize)]
struct Artifact {
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds the tests of the tree and picks those that are named as `package:target`.
///
/// # Errors
///
/// They do not build, or one that is named does not exist.
pub fn programs(tree: &Path, packages: &[String], named: &[(String, String, Only)]) -> Result<Vec<Program>, BoxError> {
    let built = Command::new("cargo")
        .args(["test", "--no-run", "--locked", "--message-format", "json"])
        .args(packages)
        .args(named.iter().any(|(_, target, _)| target == "lib").then_some("--lib"))
        .args(
            named
                .iter()
                .filter(|(_, target, _)| target != "lib")
                .flat_map(|(_, target, _)| ["--test", target.as_str()]),
        )
        .current_dir(tree)
        .stderr(Stdio::inherit())
        .output()?;
    if !built.status.success() {
        return Err("the tests do not build".into());
    }
    let text = String::from_utf8_lossy(&built.stdout);
    let artifacts: Vec<Artifact> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut programs = Vec::new();
    for (package, target, only) in named {
        let found = artifacts.iter().find_map(|a| {
            let (of, executable) = (a.target.as_ref()?, a.executable.clone()?);
            let folder = a.manifest_path.as_ref()?.parent()?.to_owned();
            let ours = folder.strip_prefix(tree).is_ok_and(|at| at == Path::new(package));
            let right = if target == "lib" { of.kind.contains(&"lib".into()) } else { of.name == *target };
            (a.profile.as_ref()?.test && ours && right).then_some((executable, folder))
        });
        let (executable, folder) = found.ok_or_else(|| format!("no test program {package}:{target}"))?;
        let limit = Duration::from_secs(3_600);
        let (package, target, only) = (package.clone(), target.clone(), only.clone());
        programs.push(Program { package, target, executable, folder, limit, only });
    }
    Ok(programs)
}

/// How a test program ended.
enum End {
    Passed,
    Failed(String),
    TooLong,
}

/// Ends a program and whatever it has started.
fn kill(child: &mut Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status();
    let _ = child.wait();
}

fn test(tree: &Path, program: &Program, filter: Option<String>, arguments: &[String]) -> Result<End, BoxError> {
    let mut child = Command::new(&program.executable)
        .args(filter)
        .args(arguments)
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .env("INSTA_WORKSPACE_ROOT", tree)
        .env("INSTA_UPDATE", "no")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (lines, read) = mpsc::channel();
    let stdout = child.stdout.take().ok_or("no output")?;
    // The reader ends with the last process that holds the pipe.
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if line.starts_with("test ") && line.trim_end().ends_with("FAILED") && lines.send(line).is_err() {
                return;
            }
        }
    });
    let end = match read.recv_timeout(program.limit) {
        Ok(line) => {
            let name = line.trim_start_matches("test ").split(" ... ").next().unwrap_or_default().trim().to_owned();
            kill(&mut child);
            End::Failed(name)
        }
        Err(mpsc::RecvTimeoutError::Timeout) => {
            kill(&mut child);
            End::TooLong
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => match child.wait()? {
            status if status.success() => End::Passed,
            status => End::Failed(format!("({status})")),
        },
    };
    let _ = reader.join();
    Ok(end)
}

/// Runs the programs on the code as it is, and sets their limits: five times as long, and half a minute.
///
/// # Errors
///
/// A test fails there.
pub fn measure(tree: &Path, programs: &mut [Program], arguments: &[String]) -> Result<(), BoxError> {
    std::fs::write(tree.join(SWITCH), "0")?;
    for program in programs {
        let began = Instant::now();
        let filter = program.only.filter("src/");
        match test(tree, program, filter, arguments)? {
            End::Passed => {}
            End::Failed(name) => return Err(format!("{} fails without a mutant: {name}", program.target).into()),
            End::TooLong => return Err(format!("{} does not end", program.target).into()),
        }
        let took = began.elapsed();
        program.limit = took * 5 + Duration::from_secs(30);
        println!("{}:{} {:.1} s without a mutant", program.package, program.target, took.as_secs_f64());
    }
    Ok(())
}

/// Runs the programs against each of these mutants, and writes an outcome a line.
///
/// # Errors
///
/// A program cannot be started, or the results not be written.
pub fn run(
    tree: &Path,
    programs: &[Program],
    mutants: &[Woven],
    arguments: &[String],
    results: &mut impl Write,
) -> Result<(), BoxError> {
    for mutant in mutants {
        let began = Instant::now();
        let (mut verdict, mut by) = (Verdict::Missed, String::new());
        if let Some(left_out) = &mutant.left_out {
            (verdict, by) = match left_out.clone() {
                LeftOut::Unviable(why) => (Verdict::Unviable, why),
                LeftOut::Apart(why) => (Verdict::Apart, why),
            };
        } else {
            std::fs::write(tree.join(SWITCH), mutant.id.to_string())?;
            for program in programs.iter().filter(|p| mutant.file.starts_with(&p.package)) {
                match test(tree, program, program.only.filter(&mutant.file), arguments)? {
                    End::Passed => continue,
                    End::Failed(name) => (verdict, by) = (Verdict::Caught, format!("{}: {name}", program.target)),
                    End::TooLong => (verdict, by) = (Verdict::Timeout, program.target.clone()),
                }
                break;
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let outcome = Outcome { id: mutant.id, name: mutant.name.clone(), verdict, by, seconds };
        writeln!(results, "{}", serde_json::to_string(&outcome)?)?;
        results.flush()?;
        if verdict == Verdict::Missed {
            println!("missed: {}", mutant.name);
        }
    }
    std::fs::write(tree.join(SWITCH), "0")?;
    Ok(())
}
