//! Runs that are forked where their common beginning ends: each is as if it had run from its beginning, alone.

#[path = "support/in_zygotes.rs"]
#[macro_use]
mod in_zygotes;

use photofinish_sim::choices::Choices;
use photofinish_sim::host::HostSpec;
use photofinish_sim::trace::Trace;
use photofinish_sim::world::{World, WorldConfig};
use photofinish_sim::zygote::{self, Checkpoint, Exit, Finished, Zygote};
use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[global_allocator]
static HEAP: photofinish_sim::heap::WorldHeap = photofinish_sim::heap::WorldHeap;

const PLENTY: Duration = Duration::from_secs(120);

/// A beginning is `<file> <deed>`: it adds a byte to the file, which tells how often it was run, and does the deed.
fn body(beginning: &[u8], trace: Trace, checkpoint: Checkpoint) -> Vec<u8> {
    let beginning = String::from_utf8_lossy(beginning).into_owned();
    let (file, deed) = beginning.split_once(' ').expect("a file and a deed");
    std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap().write_all(b"x").unwrap();
    match deed {
        "panic" => panic!("in the beginning"),
        "return" => return b"no checkpoint".to_vec(),
        "hang" => loop {
            std::hint::spin_loop();
        },
        // Longer than a zygote waits for a process that is to end a run itself.
        "slow" => std::thread::sleep(Duration::from_millis(1300)),
        _ => {}
    }
    println!("begun");
    let mut builder = World::builder(WorldConfig::default(), trace.clone(), Choices::benign());
    builder.host("server", HostSpec::new(), |ctx| async move {
        use futures::StreamExt;
        let mut incoming = ctx.wire.listen(80).await?;
        // Moved by whatever a run does: the next one must not see it.
        let mut asked = HashMap::new();
        while let Some(io) = incoming.next().await {
            let mut io = io?;
            let n = io.read_u8().await?;
            *asked.entry(n).or_insert(0) += 1;
            io.write_all(format!("{:?}", asked).as_bytes()).await?;
        }
        Ok(())
    });
    let (folder, later) = (deed == "folder", deed == "late-folder");
    builder.host("client", HostSpec::new(), move |ctx| async move {
        if folder {
            std::fs::write(ctx.disk().join("file"), "x")?;
        }
        for n in 0..20 {
            if later && n == 15 {
                let rows = ctx.disk().join("rows");
                let found = std::fs::read_to_string(&rows).unwrap_or_default();
                ctx.trace.entry("log", "info").text(format!("finds {found:?}")).record();
                std::fs::write(rows, "x")?;
            }
            let mut io = ctx.wire.connect("server", 80).await?;
            io.write_u8(n % 7).await?;
            let mut told = String::new();
            io.read_to_string(&mut told).await?;
            ctx.trace.entry("log", "info").text(told).record();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    });
    let mut world = builder.build();
    world.start_all();
    world.run_for(Duration::from_millis(950)).expect("it goes on");
    let request = checkpoint.pass(!world.is_in_memory());
    let request = String::from_utf8_lossy(&request).into_owned();
    trace.entry("log", "info").text(format!("asked for {request}")).record();
    match &*request {
        "panic" => panic!("as asked"),
        "abort" => std::process::abort(),
        "spin" => loop {
            std::hint::spin_loop();
        },
        "crash" => world.crash("server").expect("there is one"),
        "abort later" => {
            world.run_for(Duration::from_secs(2)).expect("it goes on");
            std::process::abort()
        }
        seed => world.reseed(seed.parse().expect("a seed")),
    }
    print!("{request}");
    world.run_for(Duration::from_secs(3)).expect("it goes on");
    let order: Vec<_> = (0..9).map(|n| (n, ())).collect::<HashMap<_, _>>().into_keys().collect();
    trace.entry("log", "info").text(format!("{order:?}")).record();
    world.abandon();
    request.into_bytes()
}

fn zygote() -> Zygote {
    Zygote::start(&zygote::this_test()).expect("this test serves its zygote")
}

/// A beginning with a counter of its own.
struct Beginning(PathBuf, String);

impl Beginning {
    fn new(deed: &str) -> Beginning {
        let test = std::thread::current().name().unwrap_or("main").replace(':', "-");
        let file = std::env::temp_dir().join(format!("photofinish-checkpoint-{}-{test}-{deed}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let beginning = format!("{} {deed}", file.display());
        Beginning(file, beginning)
    }
    fn run(&self, zygote: &mut Zygote, request: &str) -> Finished {
        self.run_for(zygote, request, PLENTY)
    }
    fn run_for(&self, zygote: &mut Zygote, request: &str, limit: Duration) -> Finished {
        zygote.run_from(self.1.as_bytes(), request.as_bytes(), limit).expect("the zygote lives")
    }
    fn times_run(&self) -> u64 {
        std::fs::metadata(&self.0).map_or(0, |m| m.len())
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

in_zygotes! { zygote::serve_from_checkpoints(body);
    fn a_run_from_a_beginning_that_others_used_is_as_one_from_its_own() {
        let (shared, mut zygote) = (Beginning::new("ticks"), zygote());
        for request in ["7", "crash", "8", "crash", "7"] {
            let finished = shared.run(&mut zygote, request);
            assert_eq!((&finished.exit, &*finished.report), (&Exit::Done, request.as_bytes()));
            let alone = Beginning::new("alone").run(&mut self::zygote(), request);
            assert_eq!(finished.trace_lines(), alone.trace_lines());
            assert_eq!(finished.trace_hash(), alone.trace_hash());
        }
        assert_eq!(shared.times_run(), 1);
    }

    fn a_trace_has_the_beginning_and_so_has_the_output() {
        let (shared, mut zygote) = (Beginning::new("ticks"), zygote());
        for request in ["7", "8"] {
            let finished = shared.run(&mut zygote, request);
            let (trace, stdout) = (finished.trace(), String::from_utf8_lossy(&finished.stdout).into_owned());
            let asked = trace.iter().position(|e| e.text == format!("asked for {request}")).expect("it is told");
            assert_eq!(trace.iter().filter(|e| e.text.starts_with('{')).count(), 20);
            assert_eq!(trace[..asked].iter().filter(|e| e.text.starts_with('{')).count(), 10);
            assert_eq!(stdout, format!("begun\n{request}"));
        }
    }

    fn another_seed_changes_what_comes_after_the_checkpoint_and_nothing_before() {
        let (shared, mut zygote) = (Beginning::new("ticks"), zygote());
        let [seven, eight] = ["7", "8"].map(|seed| shared.run(&mut zygote, seed).trace());
        let asked = seven.iter().position(|e| e.text.starts_with("asked")).expect("it is told");
        assert_eq!(seven[..asked], eight[..asked]);
        assert_ne!(seven.last().map(|e| &e.text), eight.last().map(|e| &e.text), "orders of maps made since");
        let times = |entries: &[photofinish_sim::trace::Entry]| entries.iter().map(|e| e.at_ns).collect::<Vec<_>>();
        assert_ne!(times(&seven[asked..]), times(&eight[asked..]), "the links' jitter");
    }

    fn whatever_ends_a_run_the_next_one_comes_from_the_same_beginning() {
        let (shared, mut zygote) = (Beginning::new("ticks"), zygote());
        let before = shared.run(&mut zygote, "7");
        for (request, limit) in [("panic", PLENTY), ("abort", PLENTY), ("spin", Duration::from_secs(1))] {
            let finished = shared.run_for(&mut zygote, request, limit);
            match request {
                "panic" => assert!(matches!(&finished.exit, Exit::Panicked(m) if m.contains("as asked")), "{}", finished.exit),
                "abort" => assert_eq!(finished.exit, Exit::Signal(libc::SIGABRT)),
                _ => assert_eq!(finished.exit, Exit::WallLimit),
            }
            assert!(finished.trace().iter().any(|e| e.text == format!("asked for {request}")));
            assert_eq!(shared.run(&mut zygote, "7").trace_lines(), before.trace_lines());
        }
        assert_eq!(shared.times_run(), 1);
    }

    fn a_beginning_that_takes_long_takes_nothing_of_the_limit_of_its_runs() {
        let (shared, mut zygote) = (Beginning::new("slow"), zygote());
        let finished = shared.run_for(&mut zygote, "spin", Duration::from_secs(3));
        assert_eq!(finished.exit, Exit::WallLimit);
        assert_eq!(shared.run(&mut zygote, "7").exit, Exit::Done);
        assert_eq!(shared.times_run(), 1, "the beginning outlives the run that its process ended");
    }

    fn two_beginnings_wait_and_a_third_takes_the_place_of_the_one_used_less_lately() {
        let [one, two, three] = [Beginning::new("one"), Beginning::new("two"), Beginning::new("three")];
        let mut zygote = zygote();
        let times = || [one.times_run(), two.times_run(), three.times_run()];
        for (beginning, expected) in [(&one, [1, 0, 0]), (&two, [1, 1, 0]), (&one, [1, 1, 0]), (&two, [1, 1, 0]),
            (&three, [1, 1, 1]), (&two, [1, 1, 1]), (&one, [2, 1, 1]), (&two, [2, 1, 1])]
        {
            assert_eq!(beginning.run(&mut zygote, "7").exit, Exit::Done);
            assert_eq!(times(), expected);
        }
    }

    fn a_beginning_that_leaves_a_folder_is_run_anew_for_each_run() {
        let (folder, mut zygote) = (Beginning::new("folder"), zygote());
        let [first, second] = [(); 2].map(|()| folder.run(&mut zygote, "7"));
        assert_eq!((&first.exit, &second.exit), (&Exit::Done, &Exit::Done));
        assert_eq!(first.trace_lines(), second.trace_lines());
        assert_eq!(folder.times_run(), 2);
    }

    fn a_folder_of_a_run_that_was_killed_is_not_found_by_the_next_from_its_beginning() {
        let (later, mut zygote) = (Beginning::new("late-folder"), zygote());
        for request in ["abort later", "7", "abort later", "7"] {
            let finished = later.run(&mut zygote, request);
            assert_eq!(finished.exit, if request == "7" { Exit::Done } else { Exit::Signal(libc::SIGABRT) });
            let told: Vec<_> = finished.trace().into_iter().map(|e| e.text).filter(|t| t.starts_with("finds")).collect();
            assert_eq!(told, ["finds \"\""], "{request}");
        }
        assert_eq!(later.times_run(), 1);
    }

    fn a_beginning_that_ends_before_its_checkpoint_is_the_outcome() {
        let mut zygote = zygote();
        let panics = Beginning::new("panic");
        for times in [1, 2] {
            let exit = panics.run(&mut zygote, "7").exit;
            assert!(matches!(&exit, Exit::Panicked(m) if m.contains("in the beginning")), "{exit}");
            assert_eq!(panics.times_run(), times);
        }
        let returned = Beginning::new("return").run(&mut zygote, "7");
        assert_eq!((&returned.exit, &*returned.report), (&Exit::Done, b"no checkpoint".as_slice()));
        assert_eq!(Beginning::new("hang").run_for(&mut zygote, "7", Duration::from_millis(100)).exit, Exit::WallLimit);
        assert_eq!(Beginning::new("ticks").run(&mut zygote, "7").exit, Exit::Done);
    }
}
