//! The local references that calls of native methods hold, by local frame.

/// How many local frames of a call are followed: its own, and those that it begins within one another.
pub const LOCAL_FRAMES: usize = 8;

/// For how many local references a native method has room when it is called; those that it is called with are not among them.
pub const LOCAL_CAPACITY: u32 = 16;

/// The local references of one local frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct JniLocalFrame {
    /// How many it holds.
    pub held: u32,
    /// How many it may hold.
    pub capacity: u32,
    /// The lowest of their values.
    pub low: u64,
    /// The highest. The VM keeps those of one frame together, so far as there are not more than 32: none of another frame is between.
    pub high: u64,
}

impl JniLocalFrame {
    /// One that holds nothing.
    #[must_use]
    #[inline(always)]
    pub const fn with_capacity(capacity: u32) -> Self {
        Self { held: 0, capacity, low: 0, high: 0 }
    }
}

/// The local references that a call of a native method holds, by local frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct JniLocals {
    /// How many frames it has begun and not ended.
    pub pushed: u32,
    /// The most that one of its frames has held at once, beyond its capacity; 0 if none has.
    pub most: u32,
    /// Its own, and those that it has begun, as far as they are followed.
    pub frames: [JniLocalFrame; LOCAL_FRAMES],
}

const _: () = assert!(size_of::<JniLocals>() == 8 + 24 * LOCAL_FRAMES);

impl JniLocals {
    /// Those of a call that begins.
    pub const NONE: Self =
        Self { pushed: 0, most: 0, frames: [JniLocalFrame::with_capacity(LOCAL_CAPACITY); LOCAL_FRAMES] };

    /// A reference is made. In a frame that is not followed it is nothing.
    #[inline(always)]
    pub fn make(&mut self, value: u64) {
        let Some(frame) = self.frames.get_mut(self.pushed as usize) else { return };
        if frame.held == 0 || value < frame.low {
            frame.low = value;
        }
        if frame.held == 0 || value > frame.high {
            frame.high = value;
        }
        frame.held += 1;
        let held = frame.held;
        if held > frame.capacity && held > self.most {
            self.most = held;
        }
    }

    /// A reference is let go, by the innermost frame that may hold it. One that the native method was called with is held by none.
    #[inline(always)]
    pub fn let_go(&mut self, value: u64) {
        for (place, frame) in self.frames.iter_mut().enumerate().rev() {
            let is_begun = place <= self.pushed as usize;
            if is_begun && frame.held > 0 && frame.low <= value && value <= frame.high {
                frame.held -= 1;
                return;
            }
        }
    }

    /// A frame begins. Returns whether it is followed.
    #[inline(always)]
    pub fn push(&mut self, capacity: u32) -> bool {
        self.pushed = self.pushed.saturating_add(1);
        let Some(frame) = self.frames.get_mut(self.pushed as usize) else { return false };
        *frame = JniLocalFrame::with_capacity(capacity);
        true
    }

    /// The innermost frame ends, with all that it holds, unless it is the call's own.
    #[inline(always)]
    pub fn pop(&mut self) {
        self.pushed = self.pushed.saturating_sub(1);
    }

    /// There is room for so many more.
    #[inline(always)]
    pub fn make_room(&mut self, more: u32) {
        let Some(frame) = self.frames.get_mut(self.pushed as usize) else { return };
        let capacity = frame.held.saturating_add(more);
        if capacity > frame.capacity {
            frame.capacity = capacity;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{JniLocals, LOCAL_FRAMES};

    /// Check that a frame is beyond its capacity with the first reference that there is no room for, whatever was let go before, and not
    /// with room that was made for it.
    #[test]
    fn locals_beyond_their_capacity() {
        let mut locals = JniLocals::NONE;
        let make = |locals: &mut JniLocals, from: u64, to: u64| (from..to).for_each(|value| locals.make(8 * value));
        make(&mut locals, 1, 17);
        assert_eq!(locals.most, 0);
        // One that it was called with is none of them.
        locals.let_go(1 << 20);
        locals.let_go(8);
        locals.make(8);
        assert_eq!((locals.frames[0].held, locals.most), (16, 0));
        locals.make_room(4);
        make(&mut locals, 17, 21);
        assert_eq!(locals.most, 0);
        make(&mut locals, 21, 23);
        (1..23).for_each(|value| locals.let_go(8 * value));
        assert_eq!((locals.frames[0].held, locals.most), (0, 22));
    }

    /// Check that a frame within has its own capacity and takes away what it holds, that what an outer one holds can be let go meanwhile, and
    /// that in a frame which is not followed nothing is.
    #[test]
    fn locals_by_frame() {
        let mut locals = JniLocals::NONE;
        (1..=16).for_each(|value| locals.make(value));
        assert!(locals.push(2));
        [100, 101].into_iter().for_each(|value| locals.make(value));
        locals.let_go(5);
        assert_eq!((locals.frames[0].held, locals.frames[1].held), (15, 2));
        locals.pop();
        locals.make(17);
        assert_eq!((locals.frames[0].held, locals.most), (16, 0));
        assert!(locals.push(1));
        [100, 101, 102].into_iter().for_each(|value| locals.make(value));
        assert_eq!(locals.most, 3);
        assert!((2..LOCAL_FRAMES).all(|_| locals.push(0)) && !locals.push(0));
        locals.make(200);
        (0..LOCAL_FRAMES).for_each(|_| locals.pop());
        // More than were begun.
        locals.pop();
        assert_eq!((locals.pushed, locals.frames[0].held, locals.most), (0, 16, 3));
    }
}
