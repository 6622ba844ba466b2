//! Sequence counts: readers that write nothing and retry when a writer came between.

pub mod errseq;
pub mod seqcount;
pub mod seqlock;
pub mod seqrwlock;
