//! Tokens that interrupt waits.

use std::ffi::c_int;

use vfscale::posix::WaitToken;

use crate::args::given;
use crate::border::{Failure, border};
use crate::handles::{Kind, Table, Used};
use crate::structs::vfscale_token;

static TOKENS: Table<WaitToken> = Table::new(Kind::Token, false);

/// The token of a call that may wait: that of its caller, or one that nobody cancels.
pub(crate) enum Waiting {
    Callers(Used<WaitToken>),
    Own(WaitToken),
}

impl Waiting {
    /// Returns the token of a handle; of a null pointer, one that nobody cancels.
    pub(crate) fn new(token: *mut vfscale_token) -> Result<Waiting, Failure> {
        if token.is_null() {
            Ok(Waiting::Own(WaitToken::new()))
        } else {
            Ok(Waiting::Callers(TOKENS.get(token as u64)?))
        }
    }

    /// Returns the token.
    pub(crate) fn token(&self) -> &WaitToken {
        match self {
            Waiting::Callers(token) => token,
            Waiting::Own(token) => token,
        }
    }
}

/// Makes a token that is not cancelled, and stores its handle in `token`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_token_new(token: *mut *mut vfscale_token) -> c_int {
    border("vfscale_token_new", || {
        let place = given!(place(token))?;
        place.set(TOKENS.insert(WaitToken::new())? as *mut vfscale_token);
        Ok(())
    })
}

/// Ends every wait under a token, now and from now on: the calls fail with EINTR.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_token_cancel(token: *mut vfscale_token) -> c_int {
    border("vfscale_token_cancel", || {
        TOKENS.get(token as u64)?.cancel();
        Ok(())
    })
}

/// Frees a token. Calls that wait under it go on.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_token_free(token: *mut vfscale_token) -> c_int {
    border("vfscale_token_free", || TOKENS.remove(token as u64))
}
