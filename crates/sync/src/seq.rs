//! Sequence counts: readers that write nothing and retry if a writer was inside.

pub mod errseq;
pub mod seqcount;
pub mod seqlock;
pub mod seqrwlock;
