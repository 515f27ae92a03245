//! What people read and editors use is as the program is: the book's commands and files, the schema of scenarios.
#[path = "../../harness/race/tests/support/json_schema.rs"]
mod json_schema;
mod pages;
mod schema;
mod workflow;
