//! Messages between ranks beside numbers: which call each makes, and whether it failed.

use super::AllGather;
use crate::error::Error;
use crate::memory;
use std::fmt::Write;

/// Bytes of the text that describes a rank's call.
const TEXT: usize = 512;

/// A call that all ranks make.
pub(super) struct Exchange<G> {
    all_gather: G,
}

impl<G: AllGather> Exchange<G> {
    pub fn new(all_gather: G) -> Self {
        Self { all_gather }
    }

    /// Begins the call: an error on all ranks if a rank has one, or if their descriptions differ. Returns the count of
    /// each rank.
    pub async fn begin<T>(
        &mut self,
        made: Result<T, Error>,
        describe: impl FnOnce(&T) -> (u64, Vec<(&'static str, String)>),
    ) -> Result<(T, Vec<u64>), G::Error> {
        let mut names = vec![];
        let described = made.map(|made| {
            let (count, lines) = describe(&made);
            let (of_lines, values): (Vec<_>, Vec<_>) = lines.into_iter().unzip();
            names = of_lines;
            let message = [&count.to_le_bytes(), &*text(&values.join("\n"))].concat();
            (made, message)
        });
        let (made, all) = self.share(described, 8 + TEXT).await?;
        let (mut counts, mut texts) = (Vec::new(), Vec::new());
        for message in all.chunks(8 + TEXT) {
            if let Some((count, text)) = message.split_first_chunk() {
                counts.push(u64::from_le_bytes(*count));
                texts.push(from_text(text));
            }
        }
        for (line, name) in names.into_iter().enumerate() {
            let values = texts
                .iter()
                .map(|text| text.lines().nth(line).unwrap_or("nothing"));
            compare(name, &values.collect::<Vec<_>>())?;
        }
        Ok((made, counts))
    }

    /// Ends the call: an error on all ranks if a rank has one.
    pub async fn end<T>(&mut self, done: Result<T, Error>) -> Result<T, G::Error> {
        let (done, _) = self.share(done.map(|done| (done, vec![])), 0).await?;
        Ok(done)
    }

    /// Sends the bytes of all ranks to all of them, this many from each; an error on all ranks if a rank has one.
    pub async fn share<T>(
        &mut self,
        made: Result<(T, Vec<u8>), Error>,
        bytes: usize,
    ) -> Result<(T, Vec<u8>), G::Error> {
        let mut message = memory::collect("a message", std::iter::repeat_n(0, 1 + bytes))?;
        let own = match &made {
            Ok((_, bytes)) => bytes.as_slice(),
            Err(_) => &[],
        };
        for (to, from) in message.iter_mut().skip(1).zip(own) {
            *to = *from;
        }
        if let (Err(_), Some(failed)) = (&made, message.first_mut()) {
            *failed = 1;
        }
        let all = self.all_gather.all_gather(&message).await?;
        let (made, _) = made?;
        let expected = message.len() * self.all_gather.ranks();
        if all.len() != expected {
            return Err(Error::argument(
                "all_gather",
                format!("{expected} bytes from {} ranks", self.all_gather.ranks()),
                format_args!("{} bytes", all.len()),
            )
            .into());
        }
        let mut gathered = memory::room("what ranks have gathered", all.len())?;
        for (rank, message) in all.chunks(1 + bytes).enumerate() {
            match message {
                [0, own @ ..] => gathered.extend_from_slice(own),
                _ => {
                    return Err(Error::Ranks {
                        what: "call",
                        got: format!("one that failed on rank {rank}; see its error"),
                    }
                    .into());
                }
            }
        }
        Ok((made, gathered))
    }
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes: Vec<u8> = text.bytes().take(TEXT).collect();
    bytes.resize(TEXT, 0);
    bytes
}

fn from_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim_end_matches('\0').to_owned()
}

/// An error, the same on all ranks, if their texts differ.
fn compare(what: &'static str, said: &[&str]) -> Result<(), Error> {
    let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
    for (rank, said) in said.iter().enumerate() {
        match groups.iter_mut().find(|(known, _)| known == said) {
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((said, vec![rank])),
        }
    }
    if groups.len() <= 1 {
        return Ok(());
    }
    let mut got = String::new();
    for (said, ranks) in groups {
        let between = if got.is_empty() { "" } else { "; " };
        // Writing to a string does not fail.
        let _ = write!(got, "{between}{said} on {}", listed(&ranks));
    }
    Err(Error::Ranks { what, got })
}

/// A list of ranks. It names the first ones and counts the others.
fn listed(ranks: &[usize]) -> String {
    const MOST: usize = 8;
    let first = ranks.iter().take(MOST).map(usize::to_string);
    let first = first.collect::<Vec<_>>().join(", ");
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    match ranks.len().checked_sub(MOST) {
        Some(others @ 1..) => format!("{word} {first} and {others} others"),
        _ => format!("{word} {first}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranks_that_differ_are_named() {
        compare("epsilon", &["1e-5"; 3]).unwrap();
        let error = compare("epsilon", &["1e-5", "1e-3", "1e-5"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "epsilon: expected the same on all ranks, got 1e-5 on ranks 0, 2; 1e-3 on rank 1"
        );
        let many: Vec<usize> = (0..11).collect();
        assert_eq!(listed(&many), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 3 others");
    }

    #[test]
    fn texts_come_back() {
        let long = "x".repeat(TEXT + 9);
        assert_eq!(from_text(&text("forward\n17")), "forward\n17");
        assert_eq!(from_text(&text(&long)).len(), TEXT);
    }
}
