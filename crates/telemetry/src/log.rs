//! The log: tracing events as text or JSON lines on standard error, with a level that can be changed at run time.
//!
//! Lines are written by a thread of their own. Workers hand them over through a bounded queue and never wait: where the
//! reader of standard error is too slow, lines are dropped and counted (`forebay_log_lines_dropped_total`).
