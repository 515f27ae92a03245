//! The report NVIDIA/OpenShell#5195, end to end: what a run's trace shows, and that the same run is the same again.
//!
//! Each test re-executes this program to get a zygote that leads back to it, so [`runs`] comes first in every test.
mod golden;
mod idle;
mod order;
mod perfetto;
mod real_path;
mod replay;
mod runs;
mod snapshots;
