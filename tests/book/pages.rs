//! The book and the README: commands are run and must print what stands there, files are as shown, links lead somewhere.
//!
//! `BLESS=1` writes what the commands print. A line `...` in the expected output stands for any lines; wall times are not
//! compared. A block of `yaml,file=NAME` is written into the chapter's folder before the commands behind it run; one of
//! `rust,file=PATH` must be that file of the repository.
use std::path::{Path, PathBuf};
use std::process::Command;

const BIN: &str = env!("CARGO_BIN_EXE_photofinish");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README and the chapters, by name.
fn pages() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(root().join("docs")).expect("docs/");
    let mut pages: Vec<PathBuf> = docs.map(|entry| entry.expect("an entry").path()).collect();
    pages.retain(|path| path.extension().is_some_and(|e| e == "md"));
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A fenced block: what stands behind the fence, the lines in it, and the line of the page where they begin.
struct Block {
    info: String,
    lines: Vec<String>,
    from: usize,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (n, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if open => open = false,
            Some(info) => {
                blocks.push(Block { info: info.to_owned(), lines: Vec::new(), from: n + 1 });
                open = true;
            }
            None if open => blocks.last_mut().expect("an open block").lines.push(line.to_owned()),
            None => {}
        }
    }
    blocks
}

/// A page's text with a block's lines replaced.
fn replaced(text: &str, block: &Block, lines: &[String]) -> String {
    let all: Vec<&str> = text.lines().collect();
    let (before, rest) = all.split_at(block.from);
    let after = &rest[block.lines.len()..];
    let new = lines.iter().map(String::as_str);
    before.iter().copied().chain(new).chain(after.iter().copied()).map(|l| format!("{l}\n")).collect()
}

/// Words of a command line; single quotes keep together.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.extend(Some(std::mem::take(&mut word)).filter(|w| !w.is_empty())),
            c => word.push(c),
        }
    }
    words.extend(Some(word).filter(|w| !w.is_empty()));
    words
}

/// What a command of the book prints, with the program's path as its name.
fn run(line: &str, folder: &Path) -> Vec<String> {
    let words = words(line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let args = match words[..] {
        ["photofinish", ref args @ ..] | ["cargo", "run", "--release", "--", ref args @ ..] => args,
        _ => panic!("the book's commands are of photofinish: {line}"),
    };
    let output = Command::new(BIN)
        .args(args)
        .current_dir(folder)
        .env_remove("BLESS")
        .env_remove("GITHUB_ACTIONS")
        .output()
        .expect("it starts");
    let code = output.status.code();
    assert!(matches!(code, Some(0..=2)), "{line}: {code:?}\n{}", String::from_utf8_lossy(&output.stderr));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).expect("text").replace(BIN, "photofinish");
    text.lines().map(|l| l.trim_end().to_owned()).collect()
}

/// The line with wall times masked and blanks made one.
fn masked(line: &str) -> String {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    for i in 1..words.len() {
        let is_time = words[i].starts_with(|c: char| c.is_ascii_digit()) && words[i].ends_with('s');
        if words[i - 1] == "in" && is_time {
            words[i] = "#";
        }
    }
    words.join(" ")
}

/// Is this what was printed? `...` stands for any lines.
fn fits(expected: &[String], printed: &[String]) -> bool {
    match expected {
        [] => printed.is_empty(),
        [any, rest @ ..] if any.trim() == "..." => (0..=printed.len()).any(|n| fits(rest, &printed[n..])),
        [line, rest @ ..] => printed.first().is_some_and(|p| masked(p) == masked(line)) && fits(rest, &printed[1..]),
    }
}

/// Commands of a console block, each with the output that stands behind it.
fn commands(block: &Block) -> Vec<(String, Vec<String>)> {
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    for line in &block.lines {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), Vec::new())),
            (None, Some((_, output))) => output.push(line.trim_end().to_owned()),
            (None, None) => panic!("a console block begins with a command: {line}"),
        }
    }
    commands
}

#[test]
fn commands_print_what_the_book_says() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut ran = 0;
    for page in pages() {
        let name = page.file_stem().expect("a name").to_string_lossy().into_owned();
        let folder = std::env::temp_dir().join(format!("photofinish-book-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut text = read(&page);
        for n in 0..blocks(&text).len() {
            let block = &blocks(&text)[n];
            if let Some(file) = block.info.strip_prefix("yaml,file=") {
                std::fs::write(folder.join(file), block.lines.join("\n") + "\n").expect("a file");
            }
            if block.info != "console" {
                continue;
            }
            let mut lines = Vec::new();
            for (command, expected) in commands(block) {
                let printed = run(&command, &folder);
                ran += 1;
                let as_expected = fits(&expected, &printed);
                assert!(
                    as_expected || bless,
                    "{}: `{command}` printed:\n{}\nexpected (BLESS=1 writes it anew):\n{}",
                    page.display(),
                    printed.join("\n"),
                    expected.join("\n")
                );
                lines.push(format!("$ {command}"));
                lines.extend(if as_expected { expected } else { printed });
            }
            text = replaced(&text, block, &lines);
        }
        if bless && text != read(&page) {
            std::fs::write(&page, text).expect("the page");
        }
        let _ = std::fs::remove_dir_all(&folder);
    }
    assert!(ran >= 5, "the book has commands: {ran}");
}

#[test]
fn files_are_as_the_book_shows_them() {
    for page in pages() {
        let text = read(&page);
        for block in blocks(&text) {
            let Some(path) = block.info.strip_prefix("rust,file=") else { continue };
            let lines: Vec<String> = read(&root().join(path)).lines().map(str::to_owned).collect();
            if std::env::var_os("BLESS").is_some() {
                std::fs::write(&page, replaced(&text, &block, &lines)).expect("the page");
            } else {
                assert_eq!(block.lines, lines, "{} shows {path}; BLESS=1 writes it anew", page.display());
            }
        }
    }
}

/// Targets of the links of a text, outside of blocks.
fn links(text: &str) -> Vec<String> {
    let mut inside = false;
    let prose = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    // Pictures are made by another test.
    let is_picture = |before: &str| before.rfind('[').is_some_and(|open| before[..open].ends_with('!'));
    let targets = |line: &str| -> Vec<String> {
        let ends = line.match_indices("](").filter(|(at, _)| !is_picture(&line[..*at]));
        ends.filter_map(|(at, _)| line[at + 2..].split_once(')')).map(|(target, _)| target.to_owned()).collect()
    };
    prose.flat_map(targets).collect()
}

#[test]
fn links_lead_to_files() {
    for page in pages() {
        let folder = page.parent().expect("a folder");
        for link in links(&read(&page)) {
            let path = link.split('#').next().unwrap_or("");
            if !path.is_empty() && !path.contains("://") {
                assert!(folder.join(path).exists(), "{}: {link}", page.display());
            }
        }
    }
}

#[test]
fn every_chapter_is_in_the_summary() {
    let listed = links(&read(&root().join("docs/SUMMARY.md")));
    for page in pages() {
        let name = page.file_name().expect("a name").to_string_lossy().into_owned();
        if page.parent().is_some_and(|p| p.ends_with("docs")) && name != "SUMMARY.md" {
            assert!(listed.contains(&name), "{name} is not in docs/SUMMARY.md");
        }
    }
}

#[test]
fn expected_output_may_leave_lines_out_and_wall_times_differ() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    for (expected, printed, fit) in [
        ("a  b", "a b", true),
        ("holds 3.5s in   24ms", "holds 3.5s in  1.2s", true),
        ("holds 3.5s in 24ms", "holds 3.6s in 24ms", false),
        ("a\n...\nd", "a\nb\nc\nd", true),
        ("a\n...", "a", true),
        ("a\n...\nd", "a\nb", false),
        ("a", "a\nb", false),
    ] {
        assert_eq!(fits(&lines(expected), &lines(printed)), fit, "{expected:?} {printed:?}");
    }
}
