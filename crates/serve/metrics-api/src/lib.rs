//! The resource metrics API: usage rendered once when published, then selected and streamed.
