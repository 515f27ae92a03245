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
//! | [`simpler`] | a failing script made shorter: steps moved to the front, sandboxes merged |
//! | [`inevitable`] | the moments at which a run may be left, to see when its failure became inevitable |
//! | [`unheld`] | a scenario without what its script does to make it fail |
//! | [`strategy`] | how a sweep's seeds choose: swarm, PCT, delay bounds |
//! | [`story`] | causes and differences in words |
//! | [`script`] | a shrunk run as a scenario file |
//! | [`clusters`] | the cluster of a seed, where a scenario has it drawn |
//! | [`exhaust`] | every alternative of every choice, K at a time |
//! | [`pruning`] | which of them need not be run, and what they are like |
pub mod choices;
pub mod clusters;
pub mod exhaust;
pub mod findings;
pub mod fingerprint;
pub mod inevitable;
pub mod memory;
pub mod odds;
pub mod pruning;
pub mod script;
pub mod shrink;
pub mod simpler;
pub mod story;
pub mod strategy;
pub mod unheld;
