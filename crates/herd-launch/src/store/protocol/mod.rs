//! What torch's clients say, decoded from any split of the bytes, and what they are answered. Pure.
//!
//! Numbers are little endian. A string is its length as u64 and its bytes. A request is one byte that
//! says which, and fields; nothing frames it. The first request of a connection shows that it speaks
//! this protocol and not the one of torch before 2.2.

use crate::store::error::ProtocolError;

/// The longest key, bytes; torch's own bound.
pub(in crate::store) const KEY_MAX: usize = 8 * 1024;
/// The longest value, bytes; torch's own bound.
pub(in crate::store) const VALUE_MAX: usize = 8 * 1024 * 1024;
/// The most keys in one request; torch's own bound.
pub(in crate::store) const KEYS_MAX: u64 = 128 * 1024;
/// The most bytes of one request, over all its keys and values. torch has no bound of its own.
pub(in crate::store) const REQUEST_MAX: usize = 64 * 1024 * 1024;
/// What the first request must show.
const MAGIC: u32 = 0x3C85_F7CE;
/// The least room for one read.
const READ: usize = 4096;
/// The most room for one read, when a long request is under way.
const READ_MAX: usize = 256 * 1024;

/// Answer to a wait whose keys are all there.
pub(in crate::store) const STOP_WAITING: u8 = 0;
/// Answer to the end of a wait that the client gave up.
pub(in crate::store) const WAIT_CANCELLED: u8 = 1;

/// A key or a value.
pub(in crate::store) type Bytes = Vec<u8>;

/// One complete request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) enum Request {
    Validate,
    Set(Bytes, Bytes),
    CompareSet {
        key: Bytes,
        expected: Bytes,
        desired: Bytes,
    },
    Get(Bytes),
    Add(Bytes, i64),
    Check(Vec<Bytes>),
    Wait(Vec<Bytes>),
    NumKeys,
    DeleteKey(Bytes),
    Append(Bytes, Bytes),
    MultiGet(Vec<Bytes>),
    MultiSet(Vec<(Bytes, Bytes)>),
    CancelWait,
    Ping(u32),
    QueuePush(Bytes, Bytes),
    QueuePop(Bytes),
    QueueLen(Bytes),
    ListKeys,
    /// The key, and how many must come.
    Barrier(Bytes, i64),
}

/// What a request consists of.
#[derive(Debug, Clone, Copy)]
enum Field {
    Key,
    Value,
    U32,
    I64,
    /// A number n, and n keys.
    Keys,
    /// A number n, and n times a key and a value.
    Pairs,
}

/// The fields of each request, by its first byte.
fn fields(operation: u8) -> Option<&'static [Field]> {
    use Field::{I64, Key, Keys, Pairs, U32, Value};
    let fields: &[Field] = match operation {
        0 | 13 => &[U32],
        1 | 9 | 14 => &[Key, Value],
        2 => &[Key, Value, Value],
        3 | 8 | 15 | 16 => &[Key],
        4 | 18 => &[Key, I64],
        5 | 6 | 10 => &[Keys],
        7 | 12 | 17 => &[],
        11 => &[Pairs],
        _ => return None,
    };
    Some(fields)
}

/// A request of which not all bytes are here.
#[derive(Debug)]
struct Partial {
    operation: u8,
    fields: std::slice::Iter<'static, Field>,
    /// The field that is read now.
    current: Option<Field>,
    /// Of the field that is read now: how many strings are missing, where that is known.
    missing: Option<u64>,
    strings: Vec<Bytes>,
    /// The bytes of all strings, and what it costs to hold them.
    size: usize,
    number: i64,
}

/// Collects bytes as they come and gives requests.
#[derive(Debug, Default)]
pub(in crate::store) struct Decoder {
    buffer: Vec<u8>,
    /// How much of the buffer is used up.
    used: usize,
    partial: Option<Partial>,
    /// What the string that is waited for needs, for the size of the next read.
    needed: usize,
    validated: bool,
}

impl Decoder {
    /// Where the next bytes are to be appended, with room for a read.
    pub(in crate::store) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.used > 0 {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        if self.buffer.is_empty() && self.buffer.capacity() > READ {
            // An idle connection holds no more than it needs for the next request.
            self.buffer = Vec::new();
        }
        let missing = self.needed.saturating_sub(self.buffer.len());
        self.buffer.reserve(missing.clamp(READ, READ_MAX));
        &mut self.buffer
    }

    /// Bytes held for requests that are not complete, beyond what each connection has.
    pub(in crate::store) fn held(&self) -> usize {
        let partial = self.partial.as_ref().map_or(0, |partial| partial.size);
        self.buffer.capacity().saturating_sub(READ) + partial
    }

    /// Whether the client has shown that it speaks this protocol.
    pub(in crate::store) fn validated(&self) -> bool {
        self.validated
    }

    /// The next request; `None` until more bytes come. After an error nothing more can be understood.
    pub(in crate::store) fn next(&mut self) -> Result<Option<Request>, ProtocolError> {
        let mut partial = match self.partial.take() {
            Some(partial) => partial,
            None => match self.take::<1>() {
                Some([operation]) => self.begin(operation)?,
                None => return Ok(None),
            },
        };
        if self.fill(&mut partial)? {
            let request = partial.finish();
            self.validated |= request == Request::Validate;
            return Ok(Some(request));
        }
        self.partial = Some(partial);
        Ok(None)
    }

    fn begin(&self, operation: u8) -> Result<Partial, ProtocolError> {
        let fields = match (operation, self.validated) {
            (0, false) => fields(0),
            (_, false) => return Err(ProtocolError::NotValidated),
            (0, true) => None,
            (_, true) => fields(operation),
        };
        let mut fields = fields
            .ok_or(ProtocolError::UnknownOperation(operation))?
            .iter();
        Ok(Partial {
            operation,
            current: fields.next().copied(),
            fields,
            missing: None,
            strings: Vec::new(),
            size: 0,
            number: 0,
        })
    }

    /// Reads fields as far as there are bytes; whether all of them are complete.
    fn fill(&mut self, partial: &mut Partial) -> Result<bool, ProtocolError> {
        while let Some(field) = partial.current {
            let complete = match field {
                Field::U32 => self.take().map(u32::from_le_bytes).map(|number| {
                    partial.number = i64::from(number);
                }),
                Field::I64 => self.take().map(i64::from_le_bytes).map(|number| {
                    partial.number = number;
                }),
                Field::Key => self.string(partial, KEY_MAX)?,
                Field::Value => self.string(partial, VALUE_MAX)?,
                Field::Keys | Field::Pairs => self.strings(partial, field)?,
            };
            if complete.is_none() {
                return Ok(false);
            }
            if partial.operation == 0 && partial.number != i64::from(MAGIC) {
                return Err(ProtocolError::NotValidated);
            }
            partial.current = partial.fields.next().copied();
            partial.missing = None;
        }
        Ok(true)
    }

    fn strings(
        &mut self,
        partial: &mut Partial,
        field: Field,
    ) -> Result<Option<()>, ProtocolError> {
        let pairs = matches!(field, Field::Pairs);
        let mut missing = match partial.missing {
            Some(missing) => missing,
            None => match self.take().map(u64::from_le_bytes) {
                Some(count) if count > KEYS_MAX => {
                    return Err(ProtocolError::TooManyKeys(count));
                }
                Some(count) if pairs => 2 * count,
                Some(count) => count,
                None => return Ok(None),
            },
        };
        while missing > 0 {
            let limit = if pairs && missing % 2 == 1 {
                VALUE_MAX
            } else {
                KEY_MAX
            };
            partial.missing = Some(missing);
            if self.string(partial, limit)?.is_none() {
                return Ok(None);
            }
            missing -= 1;
        }
        Ok(Some(()))
    }

    /// One string, once it is here as a whole. What its length claims is judged before it is waited for.
    fn string(&mut self, partial: &mut Partial, max: usize) -> Result<Option<()>, ProtocolError> {
        const LENGTH: usize = size_of::<u64>();
        let rest = self.buffer.get(self.used..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH>() else {
            self.needed = LENGTH;
            return Ok(None);
        };
        let claimed = u64::from_le_bytes(*length);
        let length = usize::try_from(claimed)
            .ok()
            .filter(|&length| length <= max);
        let length = length.ok_or(ProtocolError::StringTooLong { claimed, max })?;
        let size = partial.size + length + size_of::<Bytes>();
        if size > REQUEST_MAX {
            return Err(ProtocolError::RequestTooLong);
        }
        let Some(bytes) = rest.get(..length) else {
            self.needed = LENGTH + length;
            return Ok(None);
        };
        partial.strings.push(bytes.to_vec());
        partial.size = size;
        self.used += LENGTH + length;
        self.needed = 0;
        Ok(Some(()))
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let rest = self.buffer.get(self.used..)?;
        let taken = *rest.first_chunk::<N>()?;
        self.used += N;
        Some(taken)
    }
}

impl Partial {
    /// The request. All fields are there: [`Decoder::fill`] has said so.
    fn finish(self) -> Request {
        let number = self.number;
        let mut strings = self.strings.into_iter();
        let mut next = || strings.next().unwrap_or_default();
        match self.operation {
            0 => Request::Validate,
            1 => Request::Set(next(), next()),
            2 => Request::CompareSet {
                key: next(),
                expected: next(),
                desired: next(),
            },
            3 => Request::Get(next()),
            4 => Request::Add(next(), number),
            5 => Request::Check(strings.collect()),
            6 => Request::Wait(strings.collect()),
            7 => Request::NumKeys,
            8 => Request::DeleteKey(next()),
            9 => Request::Append(next(), next()),
            10 => Request::MultiGet(strings.collect()),
            11 => {
                let mut pairs = Vec::with_capacity(strings.len() / 2);
                while let Some(key) = strings.next() {
                    pairs.push((key, strings.next().unwrap_or_default()));
                }
                Request::MultiSet(pairs)
            }
            12 => Request::CancelWait,
            // It was a u32, so nothing is cut off.
            13 => Request::Ping(u32::try_from(number).unwrap_or_default()),
            14 => Request::QueuePush(next(), next()),
            15 => Request::QueuePop(next()),
            16 => Request::QueueLen(next()),
            17 => Request::ListKeys,
            // `begin` lets nothing else pass.
            _ => Request::Barrier(next(), number),
        }
    }
}

/// Appends a string to an answer.
pub(in crate::store) fn put_string(answer: &mut Vec<u8>, bytes: &[u8]) {
    answer.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    answer.extend_from_slice(bytes);
}

/// Appends a number to an answer.
pub(in crate::store) fn put_i64(answer: &mut Vec<u8>, number: i64) {
    answer.extend_from_slice(&number.to_le_bytes());
}

/// Appends a length to an answer that has it as a signed number.
pub(in crate::store) fn put_length(answer: &mut Vec<u8>, length: usize) {
    put_i64(answer, i64::try_from(length).unwrap_or(i64::MAX));
}

#[cfg(test)]
mod tests;
