//! Keys, queues and who waits for what. Pure: a request comes in, an answer and the clients to wake go
//! out. Where torch's own server is wrong in a way that no client can rely on (it wakes those who wait
//! for a key that a failed comparison did not make, and ends a barrier when anybody writes its key),
//! this one is not.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::mem;

use crate::store::error::Refusal;
use crate::store::protocol::{
    Bytes, Request, STOP_WAITING, WAIT_CANCELLED, put_i64, put_length, put_string,
};

/// A connection's number.
pub(in crate::store) type ClientId = u64;

/// The longest answer, bytes.
pub(in crate::store) const ANSWER_MAX: usize = 64 * 1024 * 1024;
/// What one entry costs besides its bytes, roughly.
const ENTRY: usize = 64;

/// What a client waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Awaited {
    /// A value, or a queue that is not empty.
    Key(Bytes),
    /// That all have come to a barrier.
    Barrier(Bytes),
}

impl Awaited {
    fn cost(&self) -> usize {
        match self {
            // It is held by the key and by the client.
            Self::Key(key) | Self::Barrier(key) => 2 * (key.len() + ENTRY),
        }
    }
}

/// All that the store holds.
#[derive(Debug)]
pub(in crate::store) struct State {
    values: HashMap<Bytes, Bytes>,
    queues: BTreeMap<Bytes, VecDeque<Bytes>>,
    /// Who waits, longest first. No entry is empty.
    waiting: BTreeMap<Awaited, VecDeque<ClientId>>,
    /// The other way round: what each client still waits for. No entry is empty.
    awaited: BTreeMap<ClientId, BTreeSet<Awaited>>,
    /// Bytes that all of this costs.
    held: usize,
    bytes_max: usize,
    keys_max: usize,
}

impl State {
    pub(in crate::store) fn new(bytes_max: usize, keys_max: usize) -> Self {
        Self {
            values: HashMap::new(),
            queues: BTreeMap::new(),
            waiting: BTreeMap::new(),
            awaited: BTreeMap::new(),
            held: 0,
            bytes_max,
            keys_max,
        }
    }

    /// Forgets everything and everybody.
    pub(in crate::store) fn clear(&mut self) {
        *self = Self::new(self.bytes_max, self.keys_max);
    }

    /// Does what a client asks for. Appends what it is answered now and gives the clients to which
    /// [`STOP_WAITING`] is to be sent, the same one perhaps. A refusal is the client's end; what a
    /// request of several parts did before stays.
    pub(in crate::store) fn apply(
        &mut self,
        client: ClientId,
        request: Request,
        answer: &mut Vec<u8>,
    ) -> Result<Vec<ClientId>, Refusal> {
        match request {
            Request::Validate => {}
            Request::Set(key, value) => return self.set(key, value),
            Request::CompareSet {
                key,
                expected,
                desired,
            } => return self.compare_set(key, &expected, &desired, answer),
            Request::Get(key) => {
                put_string(answer, self.value(&key));
                bounded(answer)?;
            }
            Request::Add(key, number) => {
                let sum = self.number(&key)?.wrapping_add(number);
                let woken = self.set(key, sum.to_string().into_bytes())?;
                put_i64(answer, sum);
                return Ok(woken);
            }
            Request::Check(keys) => {
                let ready = keys.iter().all(|key| self.exists(key));
                answer.push(u8::from(!ready));
            }
            Request::Wait(keys) => {
                let missing = keys.into_iter().filter(|key| !self.exists(key));
                let missing = missing.map(Awaited::Key).collect();
                self.wait(client, missing, answer)?;
            }
            Request::NumKeys => put_length(answer, self.values.len()),
            Request::DeleteKey(key) => {
                let removed = self.values.remove_entry(&key);
                put_i64(answer, i64::from(removed.is_some()));
                if let Some((key, value)) = removed {
                    self.held -= cost(&key, &value);
                }
            }
            Request::Append(key, value) => return self.append(key, &value),
            Request::MultiGet(keys) => {
                for key in keys {
                    put_string(answer, self.value(&key));
                    bounded(answer)?;
                }
            }
            Request::MultiSet(pairs) => {
                let mut woken = Vec::new();
                for (key, value) in pairs {
                    woken.append(&mut self.set(key, value)?);
                }
                return Ok(woken);
            }
            Request::CancelWait => {
                self.forget(client);
                answer.push(WAIT_CANCELLED);
            }
            Request::Ping(nonce) => answer.extend_from_slice(&nonce.to_le_bytes()),
            Request::QueuePush(key, value) => return self.push(key, value),
            Request::QueuePop(key) => self.pop(&key, answer),
            Request::QueueLen(key) => {
                put_length(answer, self.queues.get(&key).map_or(0, VecDeque::len));
            }
            Request::ListKeys => {
                let mut keys: Vec<_> = self.values.keys().collect();
                keys.sort_unstable();
                put_length(answer, keys.len());
                for key in keys {
                    put_string(answer, key);
                    bounded(answer)?;
                }
            }
            Request::Barrier(key, count) => return self.barrier(client, key, count, answer),
        }
        Ok(Vec::new())
    }

    /// A client waits no more: it is gone, or has given up.
    pub(in crate::store) fn forget(&mut self, client: ClientId) {
        for awaited in self.awaited.remove(&client).unwrap_or_default() {
            self.held -= awaited.cost();
            if let Some(clients) = self.waiting.get_mut(&awaited) {
                clients.retain(|&waiting| waiting != client);
                if clients.is_empty() {
                    self.waiting.remove(&awaited);
                }
            }
        }
    }

    fn value(&self, key: &[u8]) -> &[u8] {
        self.values.get(key).map_or(&[], Vec::as_slice)
    }

    /// Empty queues are not kept.
    fn exists(&self, key: &[u8]) -> bool {
        self.values.contains_key(key) || self.queues.contains_key(key)
    }

    fn number(&self, key: &[u8]) -> Result<i64, Refusal> {
        match self.values.get(key) {
            Some(value) => leading_number(value).ok_or(Refusal::NotANumber),
            None => Ok(0),
        }
    }

    fn set(&mut self, key: Bytes, value: Bytes) -> Result<Vec<ClientId>, Refusal> {
        if self.waiting.is_empty() {
            self.put(key, value)?;
            return Ok(Vec::new());
        }
        self.put(key.clone(), value)?;
        Ok(self.wake_all(&Awaited::Key(key)))
    }

    fn put(&mut self, key: Bytes, value: Bytes) -> Result<(), Refusal> {
        let before = self.values.get(&key).map(|value| cost(&key, value));
        if before.is_none() {
            self.admits_another_key()?;
        }
        let held = self.held - before.unwrap_or(0) + cost(&key, &value);
        self.admits(held)?;
        self.values.insert(key, value);
        self.held = held;
        Ok(())
    }

    fn append(&mut self, key: Bytes, more: &[u8]) -> Result<Vec<ClientId>, Refusal> {
        let held = self.held + more.len();
        let Some(value) = self.values.get_mut(&key) else {
            return self.set(key, more.to_vec());
        };
        if held > self.bytes_max {
            return Err(self.full());
        }
        value.extend_from_slice(more);
        self.held = held;
        Ok(self.wake_all(&Awaited::Key(key)))
    }

    fn full(&self) -> Refusal {
        Refusal::Full(self.bytes_max / (1024 * 1024))
    }

    fn admits(&self, held: usize) -> Result<(), Refusal> {
        if held > self.bytes_max {
            return Err(self.full());
        }
        Ok(())
    }

    fn admits_another_key(&self) -> Result<(), Refusal> {
        if self.values.len() + self.queues.len() >= self.keys_max {
            return Err(Refusal::TooManyKeys(self.keys_max));
        }
        Ok(())
    }

    /// On a key that is missing, torch's server says that it holds what was expected, and its clients
    /// rely on that.
    fn compare_set(
        &mut self,
        key: Bytes,
        expected: &[u8],
        desired: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<Vec<ClientId>, Refusal> {
        match self.values.get(&key) {
            None if !expected.is_empty() => put_string(answer, expected),
            Some(value) if *value != expected => put_string(answer, value),
            _ => {
                let woken = self.set(key, desired.to_vec())?;
                put_string(answer, desired);
                return Ok(woken);
            }
        }
        Ok(Vec::new())
    }

    fn wait(
        &mut self,
        client: ClientId,
        missing: BTreeSet<Awaited>,
        answer: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        // A second wait takes the place of the first.
        self.forget(client);
        if missing.is_empty() {
            answer.push(STOP_WAITING);
            return Ok(());
        }
        let cost: usize = missing.iter().map(Awaited::cost).sum();
        self.admits(self.held + cost)?;
        self.held += cost;
        for awaited in &missing {
            let clients = self.waiting.entry(awaited.clone()).or_default();
            clients.push_back(client);
        }
        self.awaited.insert(client, missing);
        Ok(())
    }

    /// One thing that this client waited for has come; whether it was the last.
    fn arrived(&mut self, client: ClientId, awaited: &Awaited) -> bool {
        let Some(missing) = self.awaited.get_mut(&client) else {
            return false;
        };
        if missing.remove(awaited) {
            self.held -= awaited.cost();
        }
        let last = missing.is_empty();
        if last {
            self.awaited.remove(&client);
        }
        last
    }

    fn wake_all(&mut self, awaited: &Awaited) -> Vec<ClientId> {
        let mut clients = self.waiting.remove(awaited).unwrap_or_default();
        clients.retain(|&client| self.arrived(client, awaited));
        clients.into()
    }

    /// As a queue has one element more, one client comes back from its wait for it.
    fn wake_one(&mut self, awaited: &Awaited) -> Vec<ClientId> {
        let Some(mut clients) = self.waiting.remove(awaited) else {
            return Vec::new();
        };
        let mut woken = Vec::new();
        while let Some(client) = clients.pop_front() {
            if self.arrived(client, awaited) {
                woken.push(client);
                break;
            }
        }
        if !clients.is_empty() {
            self.waiting.insert(awaited.clone(), clients);
        }
        woken
    }

    fn push(&mut self, key: Bytes, value: Bytes) -> Result<Vec<ClientId>, Refusal> {
        let mut held = self.held + value.len() + ENTRY;
        if !self.queues.contains_key(&key) {
            self.admits_another_key()?;
            held += cost(&key, &[]);
        }
        self.admits(held)?;
        self.held = held;
        self.queues.entry(key.clone()).or_default().push_back(value);
        Ok(self.wake_one(&Awaited::Key(key)))
    }

    fn pop(&mut self, key: &[u8], answer: &mut Vec<u8>) {
        let Some(queue) = self.queues.get_mut(key) else {
            put_length(answer, 0);
            return;
        };
        put_length(answer, queue.len());
        if let Some(value) = queue.pop_front() {
            put_string(answer, &value);
            self.held -= value.len() + ENTRY;
        }
        if queue.is_empty() {
            self.queues.remove(key);
            self.held -= cost(key, &[]);
        }
    }

    /// The value of the key counts who has come; as in torch it stays, so a key serves for one barrier.
    fn barrier(
        &mut self,
        client: ClientId,
        key: Bytes,
        count: i64,
        answer: &mut Vec<u8>,
    ) -> Result<Vec<ClientId>, Refusal> {
        let come = self.number(&key)?.wrapping_add(1);
        let mut woken = self.set(key.clone(), come.to_string().into_bytes())?;
        let barrier = Awaited::Barrier(key);
        if come >= count {
            answer.push(STOP_WAITING);
            woken.append(&mut self.wake_all(&barrier));
        } else {
            self.wait(client, BTreeSet::from([barrier]), answer)?;
        }
        Ok(woken)
    }
}

fn cost(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + ENTRY
}

fn bounded(answer: &mut Vec<u8>) -> Result<(), Refusal> {
    if answer.len() > ANSWER_MAX {
        // It is sent to nobody any more.
        drop(mem::take(answer));
        return Err(Refusal::AnswerTooLong);
    }
    Ok(())
}

/// The decimal number that a text begins with, as C's `strtoll` reads it, which torch does: white space
/// before it and anything after it is passed over.
fn leading_number(text: &[u8]) -> Option<i64> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let begin = text.iter().position(|byte| !is_space(byte))?;
    let text = text.get(begin..)?;
    let signed = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let digits = text.get(signed..)?;
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let number = text.get(..signed + digits.count())?;
    str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
