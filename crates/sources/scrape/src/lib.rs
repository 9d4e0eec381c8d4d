//! A loop per kubelet: when to ask, where, whom to trust, and what to make of the answer.
