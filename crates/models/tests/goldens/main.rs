//! Every network against what the reference implementations computed (see `goldens/README.md`).

mod pixart;
mod reader;
mod t5;
mod vae;
