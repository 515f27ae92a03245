use super::*;
use crate::choices::{Pins, Source};
use futures::{FutureExt, StreamExt};

fn gates() -> Gates {
    Gates::new(Trace::new(), Choices::benign())
}

fn pinned(pins: &str) -> Gates {
    let trace = Trace::new();
    Gates::new(trace.clone(), Choices::new(Source::Benign, pins.parse().unwrap(), trace))
}

fn meta(object: &str) -> Meta {
    Meta { object: object.into(), kind: "MODIFIED".into(), value: Arc::new(serde_json::json!({"name": object})) }
}

/// Sends items about `demo`.
fn send(sender: &GateSender<u32>, values: impl IntoIterator<Item = u32>) {
    values.into_iter().for_each(|value| sender.send(meta("demo"), value));
}

/// Takes what comes at this instant.
fn take(receiver: &mut GateReceiver<u32>) -> Vec<u32> {
    std::iter::from_fn(|| receiver.next().now_or_never().flatten()).collect()
}

#[test]
fn an_open_gate_lets_all_pass_in_order() {
    let (sender, mut receiver) = gates().open("s");
    send(&sender, [1, 2, 3]);
    assert_eq!(take(&mut receiver), [1, 2, 3]);
}

#[test]
fn a_hold_keeps_what_the_consumer_has_not_taken_and_all_that_follows() {
    let gates = gates();
    let (sender, mut receiver) = gates.open("s");
    send(&sender, [1, 2]);
    assert_eq!(receiver.next().now_or_never(), Some(Some(1)));
    gates.hold("s", "h").unwrap();
    send(&sender, [3]);
    assert!(take(&mut receiver).is_empty());
    assert_eq!(gates.backlog("h").len(), 2);
    assert_eq!(gates.release("h", Release::All), Ok(2));
    send(&sender, [4]);
    assert_eq!(take(&mut receiver), [2, 3, 4]);
}

#[test]
fn releases_in_parts_keep_the_hold_and_the_order() {
    let gates = gates();
    let (sender, mut receiver) = gates.open("s");
    gates.hold("s", "h").unwrap();
    send(&sender, 1..=6);
    assert_eq!(gates.release("h", Release::Count(2)), Ok(2));
    assert_eq!(take(&mut receiver), [1, 2]);
    assert_eq!(gates.release("h", Release::AllButLast), Ok(3));
    assert_eq!(take(&mut receiver), [3, 4, 5]);
    assert_eq!(gates.release("h", Release::AllButLast), Ok(0));
    assert_eq!(gates.release("h", Release::Count(5)), Ok(1));
    assert_eq!(take(&mut receiver), [6]);
    send(&sender, [7]);
    assert!(take(&mut receiver).is_empty());
    assert_eq!(gates.release("h", Release::All), Ok(1));
    assert_eq!(take(&mut receiver), [7]);
    assert_eq!(gates.holds(), Vec::<String>::new());
}

#[test]
fn a_release_until_a_condition_includes_the_first_match_or_changes_nothing() {
    let gates = gates();
    let (sender, mut receiver) = gates.open("s");
    gates.hold("s", "h").unwrap();
    for (object, value) in [("a", 1), ("b", 2), ("a", 3), ("b", 4)] {
        sender.send(meta(object), value);
    }
    let none = gates.release("h", Release::Until(Box::new(|m| m.object == "c"))).unwrap_err();
    assert_eq!(
        none.to_string(),
        "release `h`: none of the 4 held items meets the condition: MODIFIED a, MODIFIED b, MODIFIED a, MODIFIED b"
    );
    assert!(take(&mut receiver).is_empty());
    assert_eq!(gates.release("h", Release::Until(Box::new(|m| m.value["name"] == "b"))), Ok(2));
    assert_eq!(take(&mut receiver), [1, 2]);
}

#[test]
fn a_hold_survives_the_re_opening_of_its_stream() {
    let gates = gates();
    gates.hold("s", "h").unwrap();
    let (first, receiver) = gates.open("s");
    send(&first, [1]);
    drop((first, receiver));
    assert!(gates.backlog("h").is_empty());
    let (second, mut receiver) = gates.open("s");
    send(&second, [2]);
    assert!(take(&mut receiver).is_empty());
    assert_eq!(gates.release("h", Release::All), Ok(1));
    assert_eq!(take(&mut receiver), [2]);
}

#[test]
fn a_hold_keeps_other_streams_open() {
    let gates = gates();
    let (held, mut held_out) = gates.open("a");
    let (free, mut free_out) = gates.open("b");
    gates.hold("a", "h").unwrap();
    send(&held, [1]);
    send(&free, [2]);
    assert!(take(&mut held_out).is_empty());
    assert_eq!(take(&mut free_out), [2]);
    assert_eq!(gates.streams(), ["a", "b"]);
}

#[test]
fn items_of_several_streams_under_one_key_are_released_in_the_order_of_sending() {
    let gates = gates();
    gates.hold("s", "h").unwrap();
    let ((a, mut a_out), (b, mut b_out)) = (gates.open("s"), gates.open("s"));
    send(&a, [1]);
    send(&b, [2]);
    send(&a, [3]);
    assert_eq!(gates.release("h", Release::AllButLast), Ok(2));
    assert_eq!((take(&mut a_out), take(&mut b_out)), (vec![1], vec![2]));
}

#[test]
fn an_item_that_two_holds_hold_goes_when_both_let_it() {
    let gates = gates();
    let (sender, mut receiver) = gates.open("s");
    gates.hold("s", "one").unwrap();
    send(&sender, [1]);
    gates.hold("s", "two").unwrap();
    send(&sender, [2]);
    assert_eq!(gates.release("one", Release::All), Ok(2));
    assert!(take(&mut receiver).is_empty());
    assert_eq!(gates.release("two", Release::Count(1)), Ok(1));
    assert_eq!(take(&mut receiver), [1]);
}

#[test]
fn names_are_taken_once_and_unknown_names_are_refused() {
    let gates = gates();
    gates.hold("driver/sandboxes", "late").unwrap();
    assert_eq!(
        gates.hold("other", "late").unwrap_err().to_string(),
        "hold `late`: the name is taken by a hold of driver/sandboxes; release that one first or choose another name"
    );
    assert_eq!(
        gates.release("lat", Release::All).unwrap_err().to_string(),
        "release `lat`: no hold of that name; there are: late"
    );
    gates.release("late", Release::All).unwrap();
    gates.hold("other", "late").unwrap();
    assert!(gates.backlog("unknown").is_empty());
}

#[test]
fn an_ended_stream_ends_behind_its_items_even_if_they_are_held() {
    let gates = gates();
    let (sender, mut receiver) = gates.open("s");
    gates.hold("s", "h").unwrap();
    send(&sender, [1]);
    drop(sender);
    assert_eq!(receiver.next().now_or_never(), None);
    gates.release("h", Release::All).unwrap();
    assert_eq!(receiver.next().now_or_never(), Some(Some(1)));
    assert_eq!(receiver.next().now_or_never(), Some(None));
}

#[test]
fn a_sender_notices_that_its_consumer_is_gone() {
    let (sender, receiver) = gates().open("s");
    assert!(!sender.is_closed());
    drop(receiver);
    assert!(sender.is_closed());
    send(&sender, [1]);
}

#[test]
fn holds_and_releases_are_entries_of_the_trace() {
    let trace = Trace::new();
    let gates = Gates::new(trace.clone(), Choices::benign());
    let (sender, _receiver) = gates.open("s");
    gates.hold("s", "h").unwrap();
    send(&sender, 1..=3);
    gates.release("h", Release::AllButLast).unwrap();
    let seen: Vec<_> = trace.with(|es| es.iter().map(|e| format!("{} {}: {}", e.kind, e.name, e.text)).collect());
    assert_eq!(seen, ["net hold: hold s as h", "net release: release h: 2 of 3"]);
    trace.with(|es| assert_eq!((es[1].field("stream"), es[1].field("what")), (Some("s"), Some("all-but-last"))));
}

#[test]
fn each_item_has_a_choice_of_its_own_counted_by_object_over_the_whole_run() {
    let trace = Trace::new();
    let choices = Choices::new(Source::Benign, Pins::default(), trace.clone());
    let gates = Gates::new(trace, choices.clone());
    let (first, _first_out) = gates.open::<u32>("driver/sandboxes");
    first.send(meta("demo"), 1);
    first.send(meta("other"), 2);
    drop(first);
    let (second, _second_out) = gates.open::<u32>("driver/sandboxes");
    second.send(meta("demo"), 3);
    let keys: Vec<_> = choices.points().into_iter().map(|p| p.key).collect();
    assert_eq!(
        keys,
        ["watch/driver/sandboxes/demo#1", "watch/driver/sandboxes/other#1", "watch/driver/sandboxes/demo#2"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_item_comes_when_it_is_due_and_holds_back_those_behind_it() {
    let (start, gates) = (Instant::now(), pinned("watch/s/demo#2=+1.4s,watch/s/demo#3=+200ms"));
    let (sender, mut receiver) = gates.open("s");
    send(&sender, 1..=4);
    assert_eq!(take(&mut receiver), [1]);
    assert_eq!(receiver.next().await, Some(2));
    assert_eq!(start.elapsed(), Duration::from_millis(1400));
    assert_eq!(take(&mut receiver), [3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_late_item_that_is_held_comes_at_the_later_of_both() {
    let (start, gates) = (Instant::now(), pinned("watch/s/demo#1=+1s,watch/s/demo#2=+5s"));
    let (sender, mut receiver) = gates.open("s");
    gates.hold("s", "h").unwrap();
    send(&sender, [1, 2]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(take(&mut receiver).is_empty());
    gates.release("h", Release::All).unwrap();
    assert_eq!(receiver.next().await, Some(1));
    assert_eq!(start.elapsed(), Duration::from_secs(2));
    assert_eq!(receiver.next().await, Some(2));
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_hold_stops_an_item_whose_delay_is_running() {
    let gates = pinned("watch/s/demo#1=+1s");
    let (sender, mut receiver) = gates.open("s");
    send(&sender, [1]);
    assert!(take(&mut receiver).is_empty());
    gates.hold("s", "h").unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(5), receiver.next()).await.is_err());
    gates.release("h", Release::All).unwrap();
    assert_eq!(take(&mut receiver), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_consumer_is_woken_by_items_releases_and_the_end() {
    let gates = gates();
    let (sender, receiver) = gates.open("s");
    let consumer = tokio::spawn(receiver.collect::<Vec<u32>>());
    tokio::task::yield_now().await;
    send(&sender, [1]);
    tokio::task::yield_now().await;
    gates.hold("s", "h").unwrap();
    send(&sender, [2]);
    tokio::task::yield_now().await;
    gates.release("h", Release::All).unwrap();
    tokio::task::yield_now().await;
    drop(sender);
    assert_eq!(consumer.await.unwrap(), [1, 2]);
}

/// Order, under any mix of what can be done to a stream.
#[tokio::test(start_paused = true)]
async fn order_is_kept_and_nothing_is_lost_under_any_mix_of_holds_delays_and_releases() {
    for seed in 0..200 {
        let trace = Trace::new();
        let gates = Gates::new(trace.clone(), Choices::new(Source::Seed(seed), Pins::default(), trace.clone()));
        let dice = Choices::new(Source::Seed(seed ^ 0xD1CE), Pins::default(), trace);
        let (sender, receiver) = gates.open("s");
        let consumer = tokio::spawn(receiver.collect::<Vec<u32>>());
        let mut next = 0;
        for step in 0..60 {
            match dice.pick(
                &format!("step#{step}"),
                &["send", "hold", "count", "but-last", "until", "all", "wait"],
                0.6,
            ) {
                0 => {
                    send(&sender, [next, next + 1]);
                    next += 2;
                }
                1 => drop(gates.hold("s", &format!("h{step}"))),
                6 => tokio::time::sleep(Duration::from_millis(700)).await,
                what => {
                    let holds = gates.holds();
                    let Some(name) = holds.get(step % holds.len().max(1)) else { continue };
                    let what = match what {
                        2 => Release::Count(1),
                        3 => Release::AllButLast,
                        4 => Release::Until(Box::new(|m| m.object == "demo")),
                        _ => Release::All,
                    };
                    let before = gates.backlog(name).len();
                    assert!(gates.release(name, what).is_ok_and(|count| count <= before) || before == 0);
                }
            }
        }
        for name in gates.holds() {
            gates.release(&name, Release::All).unwrap();
        }
        drop(sender);
        assert_eq!(consumer.await.unwrap(), (0..next).collect::<Vec<_>>(), "seed {seed}");
    }
}
