//! The verbs: one file for each kind of thing that can happen to a run. Each adds methods to `DecideContext`.

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
