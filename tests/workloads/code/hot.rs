// Burns CPU in a known function, called from another; "spins" is said first.
use std::io::Write;

mod planted {
    #[inline(never)]
    pub fn digest(rounds: u32) -> u32 {
        let mut value = 1u32;
        for _ in 0..rounds {
            value = std::hint::black_box(value.wrapping_mul(1664525).wrapping_add(1));
        }
        value
    }

    #[inline(never)]
    pub fn verify(rounds: u32) -> u32 {
        std::hint::black_box(digest(rounds)).wrapping_add(1)
    }
}

fn main() {
    println!("spins");
    std::io::stdout().flush().unwrap();
    loop {
        std::hint::black_box(planted::verify(3_000_000));
    }
}
