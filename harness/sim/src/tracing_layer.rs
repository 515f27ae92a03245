//! The hosts' own tracing as entries of the run's trace, stamped with virtual time and host.
//!
//! | what | kind | name | text |
//! |---|---|---|---|
//! | an event | `log` | its level, `info` | the message and ` k=v` for each field, as tracing-subscriber's `fmt` prints them |
//! | a span opens | `span` | its name | `name{k=v k2=v2}` |
//! | a span closes | `span-end` | its name | the same, with what was recorded meanwhile |
//!
//! All fields are fields of the entry as well, strings there without quotes; `spans` has the names of the spans around it.
//!
//! ```
//! use photofinish_sim::trace::Trace;
//! use photofinish_sim::tracing_layer::{Filter, install};
//!
//! let trace = Trace::new();
//! let installed = install(&trace, Filter::default());
//! tracing::info_span!("stop", sandbox_id = 7).in_scope(|| tracing::info!(phase = %"Stopped", "Phase changed"));
//! drop(installed);
//!
//! trace.with(|entries| {
//!     assert_eq!(entries[1].text, "Phase changed phase=Stopped");
//!     assert_eq!(entries[1].field("phase"), Some("Stopped"));
//!     assert_eq!(entries[1].spans, ["stop"]);
//! });
//! ```

use crate::trace::{Draft, Trace};
use std::borrow::Cow;
use std::fmt::{self, Write};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, Interest};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry, Scope, SpanRef};

/// Which events and spans are recorded: by level, and by the longest matching prefix of their target.
///
/// The rest costs next to nothing: each place in the code asks once whether it is wanted.
#[derive(Clone, Debug)]
pub struct Filter(Targets);

/// Libraries on the path of every request, whose chatter at `info` would drown the hosts' own.
const LIBRARIES: [&str; 12] = [
    "h2",
    "hyper",
    "kube_client",
    "kube_core",
    "kube_runtime",
    "mio",
    "rustls",
    "tokio",
    "tonic",
    "tower",
    "turmoil",
    "want",
];

impl Default for Filter {
    /// `INFO` and above for all, `WARN` and above for client and server libraries (hyper, h2, tower, tonic, kube).
    fn default() -> Filter {
        Filter::new(LevelFilter::INFO)
    }
}

impl Filter {
    /// This level and above for all, `WARN` and above for client and server libraries (hyper, h2, tower, tonic, kube).
    pub fn new(level: LevelFilter) -> Filter {
        let quiet = level.min(LevelFilter::WARN);
        Filter(Targets::new().with_default(level).with_targets(LIBRARIES.map(|library| (library, quiet))))
    }

    /// Another level for targets that begin with `prefix`, such as `photofinish_openshell::gateway::store`.
    pub fn target(self, prefix: impl Into<String>, level: impl Into<LevelFilter>) -> Filter {
        Filter(self.0.with_target(prefix, level.into()))
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        self.0.would_enable(metadata.target(), metadata.level())
    }

    /// The most detailed level that anything is recorded at.
    fn most(&self) -> LevelFilter {
        let most = self.0.iter().map(|(_, level)| level).max();
        most.max(self.0.default_level()).unwrap_or(LevelFilter::OFF)
    }
}

/// Records the events and spans of the calling thread, in all its runtimes, until the guard is dropped.
pub fn install(trace: &Trace, filter: Filter) -> DefaultGuard {
    let layer = Recorder { trace: trace.clone(), most: filter.most(), filter };
    tracing::subscriber::set_default(Registry::default().with(layer))
}

struct Recorder {
    trace: Trace,
    filter: Filter,
    most: LevelFilter,
}

/// What the registry keeps of an open span.
struct Open {
    host: Cow<'static, str>,
    values: Values,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.filter.wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.filter.wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut values = Values::default();
        attributes.record(&mut values);
        let span = context.span(id).expect("the registry knows a span that it just opened");
        let draft = self.trace.entry("span", span.name());
        let host = draft.host_name().clone();
        let around = names(span.parent().map(|parent| parent.scope()), &host);
        values.fill(draft.spans(around).text(values.of_span(span.name()))).record();
        span.extensions_mut().insert(Open { host, values });
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            record.record(&mut open.values);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut values = Values::default();
        event.record(&mut values);
        let draft = self.trace.entry("log", level(*event.metadata().level()));
        let around = names(context.event_scope(event), draft.host_name());
        values.fill(draft.spans(around).text(values.of_event())).record();
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let extensions = span.extensions();
        let Some(open) = extensions.get::<Open>() else { return };
        // The host that opened it: a span may also close while a crashed host is taken apart.
        let around = names(span.parent().map(|parent| parent.scope()), &open.host);
        let draft = self.trace.entry("span-end", span.name()).host(open.host.clone());
        open.values.fill(draft.spans(around).text(open.values.of_span(span.name()))).record();
    }
}

/// Names of the spans of a scope, outermost first, as far as `host` opened them: a host that keeps a span entered over an
/// await leaves it on the thread, which all hosts share.
fn names<'a, R: LookupSpan<'a>>(scope: Option<Scope<'a, R>>, host: &str) -> Vec<String> {
    let of_host = |span: &SpanRef<'a, R>| span.extensions().get::<Open>().is_none_or(|open| open.host == host);
    let spans = scope.into_iter().flat_map(Scope::from_root);
    spans.filter(of_host).map(|span| span.name().to_owned()).collect()
}

fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// Fields of an event or a span.
#[derive(Default)]
struct Values {
    message: String,
    fields: Vec<Value>,
}

struct Value {
    name: &'static str,
    /// As the entry's field has it.
    bare: String,
    /// As the text has it, where that differs: a string in quotes.
    quoted: Option<String>,
}

impl Values {
    fn set(&mut self, field: &Field, bare: String, quoted: Option<String>) {
        let name = field.name().trim_start_matches("r#");
        if name == "message" {
            self.message = bare;
            return;
        }
        let value = Value { name, bare, quoted };
        match self.fields.iter_mut().find(|v| v.name == name) {
            Some(old) => *old = value,
            None => self.fields.push(value),
        }
    }

    /// `message k=v k2="v2"`
    fn of_event(&self) -> String {
        self.joined(self.message.clone(), " ")
    }

    /// `name{k=v k2="v2"}`, or the name alone if there are no fields.
    fn of_span(&self, name: &str) -> String {
        if self.fields.is_empty() { name.to_owned() } else { format!("{}}}", self.joined(format!("{name}{{"), "")) }
    }

    fn joined(&self, mut text: String, first: &str) -> String {
        for (n, value) in self.fields.iter().enumerate() {
            let gap = if n > 0 {
                " "
            } else if text.is_empty() {
                ""
            } else {
                first
            };
            let shown = value.quoted.as_ref().unwrap_or(&value.bare);
            write!(text, "{gap}{}={shown}", value.name).expect("a String takes all");
        }
        text
    }

    fn fill<'a>(&self, draft: Draft<'a>) -> Draft<'a> {
        self.fields.iter().fold(draft, |draft, value| draft.field(value.name, &value.bare))
    }
}

impl Visit for Values {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}"), None);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.to_owned(), Some(format!("{value:?}")));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        if source.is_some() {
            write!(text, " {}.sources=[", field.name()).expect("a String takes all");
            while let Some(error) = source {
                source = error.source();
                write!(text, "{error}{}", if source.is_some() { ", " } else { "]" }).expect("a String takes all");
            }
        }
        self.set(field, text, None);
    }
}

#[cfg(test)]
#[path = "tracing_layer_tests.rs"]
mod tests;
