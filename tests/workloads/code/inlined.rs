// Functions that are inlined, generic ones and closures among them. "spins" is said first.
use std::collections::BTreeMap;
use std::io::{Read, Write};

trait Weighs {
    fn weight(&self) -> u64;
}

impl Weighs for String {
    fn weight(&self) -> u64 {
        self.bytes().map(u64::from).sum()
    }
}

#[inline(always)]
fn mixed<T: Weighs>(of: &T, seed: u64) -> u64 {
    (of.weight() ^ seed).rotate_left(7).wrapping_mul(0x9e37_79b9)
}

#[inline(never)]
fn handled(words: &[String]) -> BTreeMap<u64, usize> {
    let mut found = BTreeMap::new();
    for (at, word) in words.iter().enumerate() {
        *found.entry(mixed(word, at as u64)).or_insert(0) += word.len();
    }
    found
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    println!("spins {}", handled(&words).values().sum::<usize>());
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0u8]);
}
