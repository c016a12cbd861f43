//! The verbs: one file for each thing that can happen to a run, all of them parts of a decision.

mod cancel;
mod compose;
mod fail;
mod finish;
mod fork;
mod gate;
mod hold;
mod iterate;
mod publish;
mod recover;
mod resolve_conflict;
mod route;
mod start;
mod tamper;
mod timeout;
mod undo;
mod wait;
