//! From runs to findings: what a sweep found, how a failure shrinks, what an exhaustive search has covered.
//!
//! | module | what it does |
//! |---|---|
//! | [`fingerprint`] | tells whether two failures are the same |
//! | [`findings`] | groups failing runs, keeps the cheapest of each, counts |
//! | [`odds`] | what k of n says, and how many clean runs a fix needs |
//! | [`memory`] | `.photofinish/`: first-seen runs, replayed first next time |
//! | [`choices`] | the points where a run could go another way |
pub mod choices;
pub mod findings;
pub mod fingerprint;
pub mod memory;
pub mod odds;
