//! The page that `--html` writes, opened in a headless Chromium and driven as a reader would. Without a browser these
//! tests say so and check nothing; `.ci/run` installs one.
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use browser::Browser;
use browser::tempdir::Folder;

mod browser;

/// The race of NVIDIA/OpenShell#5195.
const LATE: &str = "late-stop-snapshot-after-stopped";

/// Runs the program; its exit code is the caller's to judge.
fn photofinish(folder: &Path, args: &[&str]) -> i32 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_photofinish"));
    let output = command.current_dir(folder).args(args).output().expect("the program starts");
    output.status.code().expect("the program ends by itself")
}

/// The page of the race as reported, in a folder that goes with the test.
fn failure() -> (Folder, PathBuf) {
    let folder = Folder::new("timeline");
    let page = folder.path().join("run.html");
    let page_arg = page.to_str().expect("a plain path");
    assert_eq!(photofinish(folder.path(), &["run", LATE, "--as-reported", "--html", page_arg]), 1);
    (folder, page)
}

fn browser() -> Option<Browser> {
    let found = browser::installed();
    if found.is_none() {
        eprintln!("skipped: no Chromium in the path (set PHOTOFINISH_BROWSER to its program)");
    }
    found.map(|program| Browser::start(&program))
}

/// Where pictures are left for people to look at.
fn artifacts() -> PathBuf {
    let folder = std::env::var_os("PHOTOFINISH_ARTIFACTS")
        .map_or(Path::new(env!("CARGO_TARGET_TMPDIR")).join("timeline"), PathBuf::from);
    std::fs::create_dir_all(&folder).expect("a folder for pictures");
    folder
}

/// Everything that a page may not do: errors, warnings of the console, requests to anywhere.
fn complaints(browser: &mut Browser, page: &Path) -> Vec<String> {
    let page = format!("file://{}", page.canonicalize().expect("the page is there").display());
    let methods =
        ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.requestWillBeSent"];
    let told = browser.told(&methods).into_iter();
    let own =
        |e: &Value| e["params"]["request"]["url"].as_str().is_some_and(|url| url == page || url == "about:srcdoc");
    told.filter(|e| !own(e)).map(|e| e.to_string()).collect()
}

#[test]
fn the_page_of_a_failure_marks_the_violation_and_shows_the_way_from_the_held_event_to_it() {
    let Some(mut browser) = browser() else { return };
    let (_folder, page) = failure();
    browser.look(1400, 900, false);
    browser.open(&page);
    let flag = browser.evaluate("document.querySelector('.flag').dataset.violation");
    assert!(flag.as_str().is_some_and(|names| names.split(' ').any(|n| n == "stopped-is-stable")), "{flag}");
    let marked = "document.querySelectorAll('.mark.broken').length > 0 && \
                  document.querySelector('.mark.broken').getAttribute('aria-label').includes('stopped-is-stable')";
    assert_eq!(browser.evaluate(marked), json!(true), "the mark of the entry says that it is the violation");
    // From the phase change back over the arrows that are drawn, to an event that waited.
    let way = browser.evaluate(
        "(() => {
            const arrows = [...document.querySelectorAll('path.arrow.story')]
                .map(a => [Number(a.dataset.from), Number(a.dataset.to)]);
            const held = new Set([...document.querySelectorAll('[data-held]')].map(g => Number(g.dataset.entry)));
            const flag = Number(document.querySelector('.flag').dataset.entry);
            const seen = new Set([flag]);
            for (let grew = true; grew;) {
                grew = false;
                for (const [from, to] of arrows) if (seen.has(to) && !seen.has(from)) { seen.add(from); grew = true; }
            }
            return {held: [...seen].filter(id => held.has(id)), label: photofinish.run.entries[flag].label};
        })()",
    );
    assert_eq!(way["label"], json!("Stopped → Provisioning"));
    assert_eq!(way["held"].as_array().map(Vec::len), Some(1), "{way}");
    let text = browser.evaluate("document.getElementById('details').innerText");
    let text = text.as_str().unwrap_or_default();
    for told in ["stopped-is-stable", "snapshot rv", "made from rv", "Stopped → Provisioning"] {
        assert!(text.contains(told), "the story beside the picture tells `{told}`: {text}");
    }
    let lagging = "[...document.querySelectorAll('.belief-stretch')].some(s => s.dataset.state === 'Provisioning' \
                   && Number(s.dataset.behind) > 0)";
    assert_eq!(browser.evaluate(lagging), json!(true), "the belief is shown with its lag");
    assert_eq!(complaints(&mut browser, &page), [] as [String; 0]);
}

#[test]
fn a_click_shows_details_causes_and_the_object_with_its_change() {
    let Some(mut browser) = browser() else { return };
    let (_folder, page) = failure();
    browser.look(1400, 900, false);
    browser.open(&page);
    browser.click(".flag rect");
    let details = browser.evaluate("document.getElementById('details').innerText");
    let details = details.as_str().unwrap_or_default().to_owned();
    for told in ["Sandbox phase changed", "old_phase", "by", "snapshot"] {
        assert!(details.contains(told), "`{told}`: {details}");
    }
    assert!(details.to_lowercase().contains("caused by"), "{details}");
    // What it rests on, twice: the snapshot that came, the one that was sent. Its object is shown as it was.
    browser.key("r");
    browser.key("r");
    let yaml = browser.evaluate("document.querySelector('#details .yaml').innerText");
    let yaml = yaml.as_str().unwrap_or_default();
    assert!(yaml.contains("bootstrap") && yaml.contains("unchanged lines"), "{yaml}");
    let changed = "document.querySelectorAll('#details .yaml .add').length";
    assert!(browser.evaluate(changed).as_u64() > Some(0), "the lines that the revision changed are marked");
    browser.key("Escape");
    assert_eq!(browser.evaluate("photofinish.state.selected"), Value::Null);
    browser.key("ArrowRight");
    browser.key("ArrowRight");
    let announced = browser.evaluate("document.getElementById('announce').textContent");
    assert!(announced.as_str().is_some_and(|text| text.contains("gateway")), "{announced}");
    assert_eq!(complaints(&mut browser, &page), [] as [String; 0]);
}

#[test]
fn filters_search_and_zoom_change_what_is_drawn() {
    let Some(mut browser) = browser() else { return };
    let (_folder, page) = failure();
    browser.look(1400, 900, false);
    browser.open(&page);
    let choose = |id: &str, value: &str| {
        format!(
            "(() => {{ const e = document.getElementById('{id}'); e.value = '{value}'; e.dispatchEvent(new Event('change')); }})()"
        )
    };
    let listed = "photofinish.list.entries.length";
    let count = |browser: &mut Browser, script: &str| browser.evaluate(script).as_u64().expect("a number");
    let some = count(&mut browser, listed);
    browser.evaluate(&choose("weight", "0"));
    let all = count(&mut browser, listed);
    assert!(all > some, "everything is more than what happened: {some} of {all}");
    assert_eq!(json!(all), browser.evaluate("photofinish.run.entries.length"));
    browser.evaluate(&choose("subject", "demo"));
    assert!(count(&mut browser, listed) < all, "an entry of the cluster alone is about no sandbox");
    browser.evaluate(&choose("subject", ""));

    browser.key("/");
    for letter in ["r", "e", "f", "u", "s", "e", "s"] {
        browser.key(letter);
    }
    assert_eq!(count(&mut browser, listed), 1, "the gateway refuses the second stop");
    let dim = "document.querySelectorAll('.mark.dim').length > 0";
    assert_eq!(browser.evaluate(dim), json!(true), "what is not meant steps back");
    browser.evaluate("document.getElementById('search').value = ''; document.getElementById('search').dispatchEvent(new Event('input')); document.getElementById('search').blur()");

    let lane = "document.querySelectorAll('#titles div').length";
    let lanes = count(&mut browser, lane);
    browser.evaluate("document.querySelector('#lane-choices input').click()");
    assert_eq!(count(&mut browser, lane), lanes - 1);

    let span = "Math.round(photofinish.window.to - photofinish.window.from)";
    let before = count(&mut browser, span);
    browser.key("+");
    assert!(count(&mut browser, span) < before);
    browser.key("0");
    assert!(count(&mut browser, span) > before, "the whole run is in sight");
    assert_eq!(complaints(&mut browser, &page), [] as [String; 0]);
}

#[test]
fn two_runs_stand_side_by_side_from_where_they_part() {
    let Some(mut browser) = browser() else { return };
    let folder = Folder::new("diff");
    let ids = ["as-reported", ""].map(|profile| format!("pf1:{LATE}:{profile}:benign:"));
    assert_eq!(photofinish(folder.path(), &["diff", &ids[0], &ids[1], "--html", "diff.html"]), 0);
    let page = folder.path().join("diff.html");
    browser.look(1800, 1000, false);
    browser.open(&page);
    let frames = "[...document.querySelectorAll('iframe')]";
    browser.wait(&format!("{frames}.every(f => f.contentDocument.documentElement.dataset.ready === 'true')"));
    let parts =
        browser.evaluate(&format!("{frames}.map(f => f.contentDocument.querySelector('.flag.noted').textContent)"));
    assert_eq!(parts, json!(["the runs part here", "the runs part here"]));
    let outcomes =
        browser.evaluate(&format!("{frames}.map(f => f.contentDocument.querySelector('.outcome').textContent)"));
    assert_eq!(outcomes, json!(["violated", "holds"]));
    browser.screenshot(&artifacts().join("diff.png"));
    assert_eq!(complaints(&mut browser, &page), [] as [String; 0]);
}

/// A sweep that finds the race of the report by itself, and its page.
fn swept() -> (Folder, PathBuf) {
    let folder = Folder::new("sweep");
    let args = ["sweep", "lifecycle", "--as-reported", "--seeds", "24", "--wall-limit", "300s", "--html", "sweep.html"];
    assert_eq!(photofinish(folder.path(), &args), 1);
    let page = folder.path().join("sweep.html");
    (folder, page)
}

#[test]
fn a_sweep_shows_what_it_found_how_soon_and_what_it_tried() {
    let Some(mut browser) = browser() else { return };
    let (_folder, page) = swept();
    for (name, width, height, dark) in
        [("light", 1500, 1700, false), ("dark", 1500, 1700, true), ("narrow", 430, 2400, false)]
    {
        browser.look(width, height, dark);
        browser.open(&page);
        let wide = "document.documentElement.scrollWidth <= window.innerWidth";
        assert_eq!(browser.evaluate(wide), json!(true), "{name}: nothing sticks out at the side");
        browser.screenshot(&artifacts().join(format!("sweep-{name}.png")));
    }
    browser.look(1500, 1000, false);
    browser.open(&page);
    let tiles = browser.evaluate("[...document.querySelectorAll('.tile dt')].map(e => e.textContent)");
    let expected = json!(["runs", "speed", "found", "first bug after", "choices tried", "pairs met"]);
    assert_eq!(tiles, expected);
    assert_eq!(browser.evaluate("document.querySelector('.tile b').textContent"), "24");
    // The figures are those of the data, and the grid has every pair.
    let data = browser.evaluate("photofinish.sweep.data");
    let findings = data["findings"].as_array().expect("findings");
    assert!(!findings.is_empty() && data["choices"][0].as_u64() > Some(0), "{data}");
    let rows = browser.evaluate("document.querySelectorAll('.found tbody tr').length");
    assert_eq!(rows, json!(findings.len()));
    let (states, events) = (data["grid"]["states"].as_array(), data["grid"]["events"].as_array());
    let pairs = states.map_or(0, Vec::len) * events.map_or(0, Vec::len);
    assert!(pairs >= 80, "{data}");
    let count = |cells: &str| format!("document.querySelectorAll('.grid tbody td{cells}').length");
    assert_eq!(browser.evaluate(&count("")), json!(pairs));
    let met = browser.evaluate(&count(":not(.never)")).as_u64().expect("a number");
    let cells = data["grid"]["cells"].as_array().expect("rows").iter().flat_map(|row| row.as_array().expect("cells"));
    assert_eq!(met as usize, cells.filter(|cell| !cell.is_null()).count());
    assert!(met > 8 && (met as usize) < pairs, "{met} of {pairs}");
    // A finding leads to its run.
    let buttons = "[...document.querySelectorAll('.found button[data-section]')]";
    let last = browser.evaluate(&format!("Number({buttons}.at(-1).dataset.section)"));
    browser.evaluate(&format!("{buttons}.at(-1).click()"));
    assert_eq!(browser.evaluate("photofinish.section"), last);
    let marked = browser.evaluate("document.querySelector('.found tr[aria-current=true]').dataset.row");
    assert_eq!(marked, json!(last.to_string()));
    assert_eq!(complaints(&mut browser, &page), [] as [String; 0]);
}

#[test]
fn a_sweep_that_finds_nothing_shows_what_it_tried_and_no_empty_timeline() {
    let Some(mut browser) = browser() else { return };
    let folder = Folder::new("sweep-clean");
    let args = ["sweep", "late-stop-snapshot-after-stopped", "--seeds", "3", "--strategy", "plain", "--html", "s.html"];
    assert_eq!(photofinish(folder.path(), &args), 0);
    browser.look(1500, 1000, false);
    let page = folder.path().join("s.html");
    browser.open(&page);
    let none = browser.evaluate("document.querySelector('#sweep .none').textContent");
    assert!(none.as_str().is_some_and(|text| text.contains("rule of three")), "{none}");
    for part in ["header", "main", "#tools", "#list"] {
        let shown = browser.evaluate(&format!("document.querySelector('body > {part}').checkVisibility()"));
        assert_eq!(shown, json!(false), "{part}");
    }
    assert_eq!(complaints(&mut browser, &page), [] as [String; 0]);
}

#[test]
fn on_paper_the_whole_chart_stands_on_the_first_page_below_its_verdict() {
    let Some(mut browser) = browser() else { return };
    let (_folder, page) = failure();
    for width in [600, 1500, 2600] {
        browser.look(width, 900, false);
        browser.open(&page);
        let pdf = browser.pdf(&artifacts().join("timeline.pdf"));
        let pages = pdf.windows(11).filter(|w| *w == b"/Type /Page").count()
            - pdf.windows(12).filter(|w| *w == b"/Type /Pages").count();
        assert_eq!(pages, 2, "one page with the chart, one that tells how it came to this, from a window of {width}");
    }
    let svg = "document.querySelector('#canvas svg').getAttribute('width')";
    let before = browser.evaluate(svg);
    browser.evaluate("window.dispatchEvent(new Event('beforeprint'))");
    assert_ne!(browser.evaluate(svg), before, "the chart is drawn anew for paper");
    browser.evaluate("window.dispatchEvent(new Event('afterprint'))");
    assert_eq!(browser.evaluate(svg), before, "and as it was, after it");
    assert_eq!(complaints(&mut browser, &page), [] as [String; 0]);
}

#[test]
fn it_is_read_in_the_dark_on_a_small_screen_and_on_paper() {
    let Some(mut browser) = browser() else { return };
    let (_folder, page) = failure();
    for (name, width, height, dark) in
        [("light", 1500, 1000, false), ("dark", 1500, 1000, true), ("narrow", 430, 1400, false)]
    {
        browser.look(width, height, dark);
        browser.open(&page);
        let wide = "document.documentElement.scrollWidth <= window.innerWidth";
        assert_eq!(browser.evaluate(wide), json!(true), "{name}: nothing sticks out at the side");
        let paper = browser.evaluate("getComputedStyle(document.documentElement).backgroundColor");
        let light = paper.as_str().is_some_and(|rgb| rgb.contains("251"));
        assert_eq!(light, !dark, "{name}: {paper}");
        browser.screenshot(&artifacts().join(format!("timeline-{name}.png")));
    }
    browser.ask("Emulation.setEmulatedMedia", json!({"media": "print"}));
    let hidden = browser.evaluate("getComputedStyle(document.getElementById('tools')).display");
    assert_eq!(hidden, "none", "nobody presses buttons on paper");
    assert_eq!(complaints(&mut browser, &page), [] as [String; 0]);
}

#[test]
fn ten_thousand_entries_make_a_page_of_less_than_five_megabytes() {
    let folder = Folder::new("timeline-long");
    let sandboxes = ["a", "b", "c"]
        .map(|name| format!("  - create: {{{name}: {{command: [sleep, infinity]}}}}\n  - await: {{{name}: Ready}}\n"));
    let steps = sandboxes.concat() + "  - run: 60m\n";
    let scenario =
        format!("scenario: long\nsummary: Three sandboxes for an hour.\nsteps:\n{steps}check: [no-dead-end]\n");
    std::fs::write(folder.path().join("long.yaml"), scenario).expect("the scenario is written");
    let code = photofinish(folder.path(), &["run", "long.yaml", "--html", "long.html", "--wall-limit", "300s"]);
    assert!(code <= 1, "the run has a verdict, whatever it is: {code}");
    let page = folder.path().join("long.html");
    let bytes = std::fs::metadata(&page).expect("the page is there").len();
    assert!(bytes < 5_000_000, "{bytes} bytes");
    let Some(mut browser) = browser() else { return };
    browser.look(1500, 1000, false);
    browser.open(&page);
    let entries = browser.evaluate("photofinish.run.entries.length").as_u64().expect("a number");
    assert!(entries >= 10_000, "{entries} entries are too few to show anything");
    // Figures for people: how fast a machine paints is no property of the page.
    let figures = browser.evaluate(
        "(() => {
            const at = name => performance.getEntriesByName(name)[0]?.startTime ?? null;
            const start = performance.now();
            for (let i = 0; i < 20; i++) { photofinish.fit(); photofinish.zoom(0.9); photofinish.chart.draw(); }
            return {first_paint_ms: at('first-contentful-paint'), drawn_ms: at('drawn'),
                    redraw_ms: (performance.now() - start) / 20,
                    elements: document.querySelectorAll('#canvas *').length};
        })()",
    );
    eprintln!("{entries} entries, {bytes} bytes: {figures}");
    assert!(figures["elements"].as_u64() < Some(8_000), "only what can be told apart is drawn: {figures}");
    assert_eq!(complaints(&mut browser, &page), [] as [String; 0]);
}
