//! Rows of a list, as many at a time as fit into a part.

use prost::Message;

/// How large a part may grow before the next one begins, in bytes.
const PART_SIZE: usize = 64 << 10;

/// Gives rows as messages to `each`, as many at a time as fit into a part.
pub(super) fn rows<T, M: Message, E>(
    rows: impl IntoIterator<Item = T>,
    message: impl Fn(T) -> M,
    mut each: impl FnMut(Vec<M>) -> Result<(), E>,
) -> Result<(), E> {
    let mut part = Vec::new();
    let mut size = 0;
    for row in rows {
        let row = message(row);
        size += row.encoded_len();
        part.push(row);
        if size >= PART_SIZE {
            each(std::mem::take(&mut part))?;
            size = 0;
        }
    }
    if part.is_empty() { Ok(()) } else { each(part) }
}
