// Burns CPU in a known function, called from another; "spins" is said first.
use std::io::Write;

// As std::hint::black_box, which is stable since Rust 1.66: Debian 12 has 1.63.
macro_rules! kept {
    ($value:expr) => {
        unsafe { std::ptr::read_volatile(&$value) }
    };
}

mod planted {
    #[inline(never)]
    pub fn digest(rounds: u32) -> u32 {
        let mut value = 1u32;
        for _ in 0..rounds {
            value = kept!(value.wrapping_mul(1664525).wrapping_add(1));
        }
        value
    }

    #[inline(never)]
    pub fn verify(rounds: u32) -> u32 {
        kept!(digest(rounds)).wrapping_add(1)
    }
}

fn main() {
    println!("spins");
    std::io::stdout().flush().unwrap();
    loop {
        kept!(planted::verify(3_000_000));
    }
}
