//! The verbs: one file for each kind of thing that can happen to a run. Each adds methods to `DecideContext`.

mod cancel;
mod compose;
mod decision;
mod fail;
mod finish;
mod gate;
mod hold;
mod iterate;
mod resolve_conflict;
mod route;
mod start;
mod timeout;
mod undo;
mod wait;
