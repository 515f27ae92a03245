//! What tests ask the kernel about processes.

pub(crate) fn kill(pid: u32, signal: i32) {
    // SAFETY: a signal to a process that this test started, or to one of its threads.
    unsafe { libc::kill(pid as i32, signal) };
}

pub(crate) fn threads(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    threads.filter_map(|t| t.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// State and parent of every process, from `/proc/<pid>/stat`.
fn processes() -> Vec<(u32, String, u32)> {
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let process = |pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        Some((pid, fields.next()?.to_owned(), fields.next()?.parse().ok()?))
    };
    pids.filter_map(process).collect()
}

pub(crate) fn children(parent: u32) -> Vec<u32> {
    processes().into_iter().filter(|(.., ppid)| *ppid == parent).map(|(pid, ..)| pid).collect()
}

/// A process that ended but that nobody waited for yet does not live.
pub(crate) fn alive(pid: u32) -> bool {
    processes().iter().any(|(p, state, _)| *p == pid && state != "Z")
}
