//! From runs to findings: what a sweep found, how a failure shrinks, what an exhaustive search has covered.
//!
//! | module | what it does |
//! |---|---|
//! | [`fingerprint`] | tells whether two failures are the same |
//! | [`findings`] | groups failing runs, keeps the cheapest of each, counts |
//! | [`odds`] | what k of n says, and how many clean runs a fix needs |
//! | [`memory`] | `.photofinish/`: first-seen runs, replayed first next time |
//! | [`choices`] | the points where a run could go another way |
//! | [`shrink`] | the fewest pins and the shortest delays that still fail |
//! | [`story`] | causes and differences in words |
//! | [`script`] | a shrunk run as a scenario file |
//! | [`exhaust`] | every alternative of every choice, K at a time |
pub mod choices;
pub mod exhaust;
pub mod findings;
pub mod fingerprint;
pub mod memory;
pub mod odds;
pub mod script;
pub mod shrink;
pub mod story;
