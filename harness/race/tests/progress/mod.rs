//! Progress is for people at a terminal: these tests give the program one, and look at both of its streams.
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Stdio;

use crate::{ended, program, toy};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("long work shows a bar on a terminal and no word of it on stdout", a_bar_on_a_terminal),
    ("with --quiet and with --json the terminal stays empty", quiet_keeps_the_terminal_empty),
    ("work that is piped has no bar and no colour", piped_work_is_plain),
    ("with --quiet nothing is said of what holds, and all of what does not", quiet_tells_only_what_fails),
];

/// A pseudo-terminal: the program's end, and the one to read what it shows.
fn terminal() -> (OwnedFd, std::fs::File) {
    let (mut ours, mut theirs) = (-1, -1);
    let size = libc::winsize { ws_row: 40, ws_col: 160, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: both pointers are to integers that take a descriptor each; no name and no modes are asked for.
    let made = unsafe { libc::openpty(&mut ours, &mut theirs, std::ptr::null_mut(), std::ptr::null(), &size) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: openpty has just opened both, and nobody else owns them.
    unsafe { (OwnedFd::from_raw_fd(theirs), std::fs::File::from_raw_fd(ours)) }
}

/// Exit code, standard output (a pipe), and what stood on the terminal that standard error is.
fn on_a_terminal(args: &[&str]) -> (i32, String, String) {
    let (theirs, mut ours) = terminal();
    let mut command = program(args);
    command.env("TERM", "xterm-256color").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::from(theirs));
    let mut child = command.spawn().expect("the program starts");
    // The terminal's last holder is the program: when it ends, so does what is read.
    drop(command);
    let shown = std::thread::spawn(move || {
        let mut shown = Vec::new();
        let mut bytes = [0; 4096];
        // The end of a terminal is an error, not an end of file.
        while let Ok(n @ 1..) = ours.read(&mut bytes) {
            shown.extend_from_slice(&bytes[..n]);
        }
        String::from_utf8_lossy(&shown).into_owned()
    });
    let mut out = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut out).expect("text");
    let code = child.wait().expect("it ends").code().expect("no signal");
    (code, out, shown.join().expect("the reader ends"))
}

fn a_bar_on_a_terminal() {
    for (args, counted) in [
        (&["sweep", "lossy-line", "--seeds", "800"][..], " of 800 runs"),
        (&["run", "lossy-line", "--seeds", "1..800"], " of 800 runs"),
        (&["prove-determinism", "lossy-line", "--seeds", "399"], " of 400 run ids"),
    ] {
        let (code, out, shown) = on_a_terminal(args);
        assert_eq!(code, 0, "{args:?}: {out}{shown}");
        assert!(shown.contains("━") && shown.contains(counted) && shown.contains("/s"), "{args:?}: {shown:?}");
        assert!(!out.is_empty(), "{args:?}: the results are there");
        assert!(!out.contains(['━', '\r', '\u{1b}']) && !out.contains("/s,"), "{args:?}: {out:?}");
        // It is taken away at the end.
        let last = shown.rsplit("\u{1b}[2K").next().unwrap_or_default();
        assert!(!last.contains('━'), "{args:?}: {shown:?}");
    }
}

fn quiet_keeps_the_terminal_empty() {
    for option in ["--quiet", "--json"] {
        for (command, seeds) in [("sweep", "400"), ("run", "1..400")] {
            let (_, out, shown) = on_a_terminal(&[command, "lossy-line", "--seeds", seeds, option]);
            assert_eq!(shown, "", "{command} {option}");
            assert_eq!(out.is_empty(), option == "--quiet", "{command} {option}: {out}");
        }
    }
}

fn piped_work_is_plain() {
    let (_, out, err) = toy(&["sweep", "lossy-line", "--seeds", "200"]);
    for text in [&out, &err] {
        assert!(!text.contains(['━', '\u{1b}', '\r']), "{text:?}");
    }
}

fn quiet_tells_only_what_fails() {
    for args in [
        &["run", "lost-reply", "--quiet"][..],
        &["sweep", "lossy-line", "--seeds", "5", "--quiet"],
        &["exhaust", "fresh-read", "--quiet"],
        &["prove-determinism", "fresh-read", "--seeds", "2", "--quiet"],
    ] {
        assert_eq!(toy(args), (0, String::new(), String::new()), "{args:?}");
    }
    // What is found is remembered in the folder: not in this one.
    let file = crate::File::new("quiet", "");
    let folder = std::path::Path::new(file.path()).parent().expect("a folder");
    for args in [
        &["run", "lost-reply", "--as-reported", "--quiet"][..],
        &["sweep", "lossy-line", "--as-reported", "--seeds", "60", "--quiet"],
    ] {
        let (code, out, err) = ended(program(args).current_dir(folder).output().expect("it starts"));
        assert_eq!((code, err.as_str()), (1, ""), "{args:?}: {out}");
        assert!(out.contains("violated") && out.contains("replay"), "{args:?}: {out}");
    }
}
