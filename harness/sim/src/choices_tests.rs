use super::*;
use crate::kind::log_uniform;
use crate::legality::Legality;

static LATE: Fault = Fault { name: "late", legality: Legality::Always, contract: "things may be late" };
static TRAVEL: Fault = Fault { name: "time-travel", legality: Legality::Ha, contract: "lists at 0 may be stale" };
static REORDER: Fault = Fault { name: "reorder", legality: Legality::Never, contract: "no cluster reorders a watch" };

const SPEC: DelaySpec =
    DelaySpec { fault: &LATE, odds: 0.5, min: Duration::from_millis(1), max: Duration::from_secs(10) };

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn seeded(seed: u64) -> Choices {
    Choices::new(Source::Seed(seed), Pins::default(), Trace::new())
}

fn pinned(pins: &str) -> Choices {
    Choices::new(Source::Benign, pins.parse().unwrap(), Trace::new())
}

#[test]
fn a_benign_run_takes_every_default() {
    let choices = Choices::benign();
    assert_eq!(choices.delay("d", &DelaySpec { odds: 1.0, ..SPEC }), Duration::ZERO);
    assert!(!choices.flip("f", &LATE, 1.0));
    assert_eq!(choices.pick("p", &["a", "b"], 1.0), 0);
    assert!(choices.points().iter().all(|p| p.taken == p.default && !p.pinned));
}

#[test]
fn what_is_not_remembered_is_answered_the_same_again() {
    let (remembers, forgets) = (seeded(7), seeded(7));
    forgets.remember_defaults(false);
    let keys: Vec<String> = (0..50).map(|n| format!("k#{n}")).collect();
    for key in keys.iter().chain(&keys) {
        assert_eq!(remembers.delay(key, &SPEC), forgets.delay(key, &SPEC), "{key}");
    }
    let drawn: Vec<_> = remembers.points().into_iter().filter(|p| p.taken != p.default).map(|p| p.key).collect();
    assert_eq!(forgets.points().into_iter().map(|p| p.key).collect::<Vec<_>>(), drawn);
    assert!(!drawn.is_empty() && drawn.len() < keys.len());
}

#[test]
fn answers_depend_on_seed_and_key_but_not_on_the_order_of_questions() {
    let keys: Vec<String> = (0..200).map(|n| format!("k#{n}")).collect();
    let (forth, back) = (seeded(7), seeded(7));
    let a: Vec<_> = keys.iter().map(|k| forth.delay(k, &SPEC)).collect();
    let mut b: Vec<_> = keys.iter().rev().map(|k| back.delay(k, &SPEC)).collect();
    b.reverse();
    assert_eq!(a, b);
    assert_ne!(a, keys.iter().map(|k| seeded(8).delay(k, &SPEC)).collect::<Vec<_>>());
    assert!((50..150).contains(&a.iter().filter(|d| !d.is_zero()).count()));
}

#[test]
fn the_same_key_asked_twice_gets_the_same_answer_and_one_entry() {
    let trace = Trace::new();
    let choices = Choices::new(Source::Seed(1), Pins::default(), trace.clone());
    let always = DelaySpec { odds: 1.0, ..SPEC };
    assert_eq!(choices.delay("k", &always), choices.delay("k", &always));
    assert_eq!((choices.points().len(), trace.len()), (1, 1));
}

#[test]
fn only_what_differs_from_the_default_is_in_the_trace() {
    let trace = Trace::new();
    let choices = Choices::new(Source::Benign, "d=+1.4s,f=yes,p=b,g=no".parse().unwrap(), trace.clone());
    choices.delay("d", &SPEC);
    choices.delay("e", &SPEC);
    choices.flip("f", &LATE, 0.0);
    choices.flip("g", &LATE, 0.0);
    choices.pick("p", &["a", "b"], 0.0);
    let texts: Vec<_> = trace.with(|entries| entries.iter().map(|e| format!("{} {}", e.kind, e.text)).collect());
    assert_eq!(texts, ["choice d=+1.4s", "choice f=yes", "choice p=b"]);
    trace.with(|entries| {
        assert_eq!((entries[0].field("value"), entries[0].field("default")), (Some("+1.4s"), Some("+0s")))
    });
}

#[test]
fn odds_of_zero_and_one_are_certain() {
    let choices = seeded(3);
    for n in 0..100 {
        assert!(!choices.flip(&format!("never#{n}"), &LATE, 0.0));
        assert!(choices.flip(&format!("always#{n}"), &LATE, 1.0));
    }
}

#[test]
fn delays_spread_over_the_orders_of_magnitude_and_print_short() {
    let choices = seeded(5);
    let always = DelaySpec { odds: 1.0, ..SPEC };
    let all: Vec<_> = (0..1000).map(|n| choices.delay(&format!("k#{n}"), &always)).collect();
    assert!(all.iter().all(|d| (SPEC.min..=SPEC.max).contains(d)));
    for decade in [1, 10, 100, 1000] {
        let range = Duration::from_millis(decade)..Duration::from_millis(decade * 10);
        let share = all.iter().filter(|d| range.contains(d)).count();
        assert!((200..300).contains(&share), "{share} of 1000 in {range:?}");
    }
    for delay in all {
        let text = print_delay(delay);
        assert!(
            text.trim_start_matches('+').bytes().filter(u8::is_ascii_digit).filter(|d| *d != b'0').count() <= 2,
            "{text}"
        );
    }
}

#[test]
fn the_ends_of_a_delays_range_are_exact() {
    let rows = [(1, 10_000), (3, 3), (250, 1_333), (7, 5_555)];
    for (min, max) in rows.map(|(a, b)| (Duration::from_millis(a), Duration::from_millis(b))) {
        assert_eq!(log_uniform(0.0, min, max), min);
        assert!(log_uniform(1.0, min, max) <= max && log_uniform(1.0, min, max) >= max.mul_f64(0.9));
        assert!((0..100).all(|n| (min..=max).contains(&log_uniform(f64::from(n) / 100.0, min, max))));
    }
}

#[test]
fn picks_reach_every_name() {
    let choices = seeded(9);
    let mut seen = [0; 4];
    for n in 0..400 {
        seen[choices.pick(&format!("k#{n}"), &["a", "b", "c", "d"], 0.75)] += 1;
    }
    assert!(seen.iter().all(|n| (60..140).contains(n)), "{seen:?}");
    assert_eq!(choices.pick("one", &["only"], 1.0), 0);
}

#[test]
fn faults_that_this_cluster_cannot_show_are_not_drawn_but_may_be_pinned() {
    let choices = Choices::new(Source::Seed(1), "pinned=yes".parse().unwrap(), Trace::new());
    assert!(choices.flip("drawn", &LATE, 1.0));
    assert!(!choices.flip("ha", &TRAVEL, 1.0));
    assert!(!choices.flip("never", &REORDER, 1.0));
    assert!(choices.flip("pinned", &REORDER, 0.0));
    let ha = Allowed { ha: true, ..Allowed::default() };
    assert!(Choices::with_allowed(Source::Seed(1), Pins::default(), Trace::new(), ha).flip("ha", &TRAVEL, 1.0));
}

#[test]
fn pins_come_before_the_seed() {
    let source = Source::Seed(1);
    let choices = Choices::new(source, "d=+0s,f=no,p=a".parse().unwrap(), Trace::new());
    assert_eq!(choices.delay("d", &DelaySpec { odds: 1.0, ..SPEC }), Duration::ZERO);
    assert!(!choices.flip("f", &LATE, 1.0));
    assert_eq!(choices.pick("p", &["a", "b"], 1.0), 0);
    assert!(choices.points().iter().all(|p| p.pinned));
}

#[test]
fn a_value_that_the_point_does_not_take_is_a_problem_and_the_default_is_taken() {
    let choices = pinned("d=1.4s,e=+11s,f=maybe,p=releese");
    assert_eq!(choices.delay("d", &SPEC), Duration::ZERO);
    assert_eq!(choices.delay("e", &SPEC), Duration::ZERO);
    assert!(!choices.flip("f", &LATE, 1.0));
    assert_eq!(choices.pick("p", &["hold", "release"], 1.0), 0);
    let problems: Vec<_> = choices.problems().iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "pin `d=1.4s`: expected a delay of at most `+10s`, such as `+1ms`",
            "pin `e=+11s`: expected a delay of at most `+10s`, such as `+1ms`; did you mean `+10s`?",
            "pin `f=maybe`: expected `yes` or `no`",
            "pin `p=releese`: expected one of `hold`, `release`; did you mean `release`?",
        ]
    );
}

#[test]
fn a_pinned_delay_may_be_shorter_than_any_drawn_one() {
    assert_eq!(pinned("d=+300us").delay("d", &SPEC), Duration::from_micros(300));
}

#[test]
fn a_key_asked_for_as_two_things_is_a_problem() {
    let choices = Choices::benign();
    choices.flip("k", &LATE, 0.0);
    assert_eq!(choices.pick("k", &["a", "b"], 0.0), 0);
    assert_eq!(
        choices.problems()[0].to_string(),
        "choice `k`: asked for one of `a`, `b`, but before for `yes` or `no`"
    );
}

#[test]
fn pins_that_nobody_asked_for_are_named_with_what_they_may_have_meant() {
    let choices = pinned("watch/driver/sandbox/demo#4=+1s,f=yes");
    choices.delay("watch/driver/sandboxes/demo#4", &SPEC);
    choices.delay("start/pod/demo#1", &SPEC);
    choices.flip("f", &LATE, 0.0);
    assert_eq!(choices.unused_pins(), ["watch/driver/sandbox/demo#4"]);
    assert_eq!(choices.nearest_key("watch/driver/sandbox/demo#4").as_deref(), Some("watch/driver/sandboxes/demo#4"));
    assert_eq!(choices.nearest_key("zzz"), None);
}

#[test]
fn points_tell_what_else_could_have_happened() {
    let choices = pinned("f=yes");
    choices.delay("d", &SPEC);
    choices.flip("f", &LATE, 0.0);
    choices.pick("p", &["a", "b", "c"], 0.0);
    let points = choices.points();
    let shown: Vec<_> = points
        .iter()
        .map(|p| format!("{} {} {:?} {:?}", p.key, p.taken, p.alternatives, p.fault.map(|f| f.name)))
        .collect();
    assert_eq!(
        shown,
        [
            r#"d +0s ["+1ms", "+100ms", "+990ms", "+10s"] Some("late")"#,
            r#"f yes ["yes"] Some("late")"#,
            r#"p a ["b", "c"] None"#,
        ]
    );
    assert!(points[1].pinned && !points[0].pinned);
}

#[test]
fn slowed_delays_are_as_long_as_the_newest_rule_says_unless_they_are_pinned() {
    let choices = Choices::new(Source::Seed(1), "call/a/GET/pods#3=+5ms".parse().unwrap(), Trace::new());
    let never = DelaySpec { odds: 0.0, ..SPEC };
    choices.slow("call/a", secs(1));
    choices.slow("call/a/GET", secs(2));
    assert_eq!(choices.delay("call/a/GET/pods#1", &never), secs(2));
    assert_eq!(choices.delay("call/a/PUT/pods#1", &never), secs(1));
    assert_eq!(choices.delay("call/ab/PUT/pods#1", &never), Duration::ZERO);
    assert_eq!(choices.delay("call/a/GET/pods#1/reply", &never), Duration::ZERO, "slowed once, not twice");
    assert_eq!(choices.delay("call/a/GET/pods#3", &never), Duration::from_millis(5));
    choices.slow("call/a", secs(60));
    assert_eq!(choices.delay("call/a/GET/pods#4", &never), secs(60), "the newest, and beyond what is drawn");
    choices.slow("call/a", Duration::ZERO);
    choices.slow("call/a/GET", Duration::ZERO);
    assert_eq!(choices.delay("call/a/GET/pods#5", &never), Duration::ZERO);
    assert_eq!(choices.delay("call/a/GET/pods#1", &never), secs(2), "what was answered stays answered");
    assert!(!choices.flip("call/a/GET/pods#6", &LATE, 0.0));
}

#[test]
fn a_swarm_leaves_most_kinds_out_and_draws_the_others_by_seed_and_key_alone() {
    static KINDS: [Fault; 8] = [kind("a"), kind("b"), kind("c"), kind("d"), kind("e"), kind("f"), kind("g"), kind("h")];
    const fn kind(name: &'static str) -> Fault {
        Fault { name, legality: Legality::Always, contract: "" }
    }
    let drawn = |seed: u64, order: &[usize]| {
        let choices = Choices::new(Source::Swarm(seed, Legal::Always), Pins::default(), Trace::new());
        let mut all: Vec<(usize, usize, bool)> = order
            .iter()
            .flat_map(|kind| (0..50).map(move |n| (*kind, n)))
            .map(|(kind, n)| (kind, n, choices.flip(&format!("x/{}#{n}", KINDS[kind].name), &KINDS[kind], 0.2)))
            .collect();
        all.sort_unstable();
        all
    };
    let (mut parts, mut differ) = (0, 0);
    for seed in 0..50 {
        let once = drawn(seed, &[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(once, drawn(seed, &[7, 6, 5, 4, 3, 2, 1, 0]));
        let kinds = (0..8).filter(|kind| once.iter().any(|(k, _, yes)| k == kind && *yes)).count();
        parts += kinds;
        differ += usize::from(once != drawn(seed + 1, &[0, 1, 2, 3, 4, 5, 6, 7]));
    }
    assert!((30..90).contains(&parts), "{parts} of 400 kinds were drawn: about 15 in 100 are to be");
    assert!(differ > 25, "{differ}");
}

#[test]
fn a_swarm_draws_no_fault_beyond_its_legality_and_a_quiet_seed_none() {
    let ha = |source| {
        let choices = Choices::new(source, Pins::default(), Trace::new());
        (0..50).any(|n| choices.flip(&format!("ha#{n}"), &TRAVEL, 1.0))
    };
    assert!((0..50).all(|seed| !ha(Source::Swarm(seed, Legal::Always)) && !ha(Source::Quiet(seed))));
    assert!((0..50).any(|seed| ha(Source::Swarm(seed, Legal::Ha))));
}

#[test]
fn a_fork_draws_faults_from_its_instant_on_and_no_words() {
    let fork = |from_ns| Source::Fork(crate::source::Fork { world: 1, draws: 5, from_ns });
    let drawn = |source| {
        let choices = Choices::new(source, Pins::default(), Trace::new());
        assert!((0..50).all(|n| choices.weigh(&format!("op/{n}"), &[("none", 1), ("stop", 1)]) == 0));
        (0..50).filter(|n| choices.flip(&format!("k#{n}"), &LATE, 0.5)).count()
    };
    // Outside a world it is always the instant 0.
    assert_eq!(drawn(fork(1)), 0);
    assert!(drawn(fork(0)) > 10);
}

#[test]
fn weighed_names_are_drawn_as_often_as_their_weights_say() {
    let choices = seeded(11);
    let mut seen = [0; 3];
    for n in 0..600 {
        seen[choices.weigh(&format!("op/{n}"), &[("none", 3), ("stop.demo", 2), ("start.demo", 1)])] += 1;
    }
    assert!(seen.iter().zip([300, 200, 100]).all(|(n, m)| (m - 45..m + 45).contains(n)), "{seen:?}");
    assert_eq!(Choices::benign().weigh("op/1", &[("none", 0), ("stop.demo", 9)]), 0, "a benign run takes the first");
}

#[test]
fn a_swarms_seed_leaves_words_out_of_all_picks_of_a_family() {
    let names = [("none", 1), ("stop.a", 5), ("stop.b", 5), ("start.a", 5)];
    let (mut without_stop, mut without_any) = (0, 0);
    for seed in 0..100 {
        let choices = Choices::new(Source::Swarm(seed, Legal::Always), Pins::default(), Trace::new());
        let taken: Vec<usize> = (0..60).map(|n| choices.weigh(&format!("op/{n}"), &names)).collect();
        let (stop_a, stop_b) = (taken.contains(&1), taken.contains(&2));
        assert_eq!(stop_a, stop_b, "a word is left out whole");
        without_stop += u32::from(!stop_a);
        without_any += u32::from(taken.iter().all(|at| *at == 0));
    }
    assert!((25..55).contains(&without_stop) && (5..30).contains(&without_any), "{without_stop} {without_any}");
}

#[test]
fn generated_texts_are_called_by_name_in_keys_and_pins_fit_whatever_they_were() {
    for generated in ["0f3a", "77c1"] {
        let pins =
            "watch/driver/pods/os-demo#1=+1s,watch/driver/pods/os-demo.2#1=+2s,watch/driver/pods/os-demo#3/drop=yes";
        let choices = Choices::new(Source::Benign, pins.parse().unwrap(), Trace::new());
        choices.call(generated, "demo");
        choices.call(generated, "other");
        choices.call("again", "demo");
        let key = format!("watch/driver/pods/os-{generated}#1");
        assert!(choices.has_pin(&key) && choices.has_pin_below(&format!("watch/driver/pods/os-{generated}#3")));
        assert!(!choices.has_pin_below(&key) && !choices.has_pin(&format!("watch/driver/pods/os-{generated}#3")));
        assert_eq!(choices.delay(&format!("watch/driver/pods/os-{generated}#1"), &SPEC), secs(1));
        assert_eq!(choices.delay("watch/driver/pods/os-again#1", &SPEC), secs(2));
        choices.flip(&format!("watch/driver/pods/os-{generated}#3/drop"), &LATE, 0.0);
        assert!(choices.unused_pins().is_empty());
    }
}

#[test]
fn points_tell_when_they_were_asked_for_and_all_kinds_are_asked_for_where_it_is_wanted() {
    assert!(!Choices::benign().asks_all() && Choices::benign().asking_all().asks_all());
    assert!(Choices::new(Source::Swarm(1, Legal::Always), Pins::default(), Trace::new()).asks_all());
    let choices = Choices::benign();
    choices.flip("x", &TRAVEL, 1.0);
    assert_eq!(choices.points()[0].at_ns, 0);
}

#[test]
fn a_run_goes_on_otherwise_right_before_a_point_that_is_asked_for_the_first_time() {
    let choices = Choices::benign();
    choices.before("late#2", |choices| {
        assert_eq!(choices.keys(), ["late#1"], "its own question is still to come");
        let pins = "late#2=+2s,late#1=+9s".parse().unwrap();
        assert_eq!(choices.go_on(Source::Benign, pins, true), ["late#1"], "that one comes too late");
    });
    let ask = |key: &str| (choices.delay(key, &SPEC), choices.asks_all());
    assert_eq!(ask("late#1"), (Duration::ZERO, false));
    assert_eq!(ask("late#2"), (secs(2), true));
    assert_eq!(ask("late#1"), (Duration::ZERO, true));
    choices.nobody_asked();
    assert_eq!(choices.keys(), ["late#1", "late#2"]);
}

#[test]
fn what_was_to_come_before_a_point_that_nobody_asks_for_comes_when_that_is_known() {
    let choices = Choices::benign();
    choices.before("late#7", |choices| {
        choices.flip("odd", &LATE, 0.0);
    });
    choices.delay("late#1", &SPEC);
    assert_eq!(choices.keys(), ["late#1"]);
    choices.nobody_asked();
    choices.nobody_asked();
    assert_eq!(choices.keys(), ["late#1", "odd"]);
}
