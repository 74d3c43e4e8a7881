//! All unsafe code of the crate: calls of the C library libpam, and closing of descriptors.
//!
//! Types and constants are those of Linux-PAM's `_pam_types.h` and `pam_appl.h`, which are the same on all Linux
//! platforms. A [`Transaction`] lasts from `pam_start(3)` to `pam_end(3)`.

#![allow(unsafe_code, reason = "libpam is a C library, loaded at run time")]

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use libloading::Library;
use zeroize::Zeroizing;

/// The library of Linux-PAM in every version since 1999.
const LIBRARY: &str = "libpam.so.0";

pub(crate) const SUCCESS: c_int = 0;
pub(crate) const OPEN_ERR: c_int = 1;
pub(crate) const SYMBOL_ERR: c_int = 2;
pub(crate) const BUF_ERR: c_int = 5;
pub(crate) const AUTHINFO_UNAVAIL: c_int = 9;
const CONV_ERR: c_int = 19;
pub(crate) const ABORT: c_int = 26;
pub(crate) const MODULE_UNKNOWN: c_int = 28;

/// `PAM_SILENT` and `PAM_DISALLOW_NULL_AUTHTOK`: no output, and no empty passwords.
const FLAGS: c_int = 0x8000 | 0x0001;

const USER: c_int = 2;
const RHOST: c_int = 4;

const PROMPT_ECHO_OFF: c_int = 1;
const PROMPT_ECHO_ON: c_int = 2;
const ERROR_MSG: c_int = 3;
const TEXT_INFO: c_int = 4;

/// `PAM_MAX_NUM_MSG`: the maximum number of messages in one call of the conversation function.
const MESSAGES_MAX: usize = 32;

#[repr(C)]
struct Message {
    style: c_int,
    text: *const c_char,
}

#[repr(C)]
struct Response {
    text: *mut c_char,
    code: c_int,
}

#[repr(C)]
struct Conversation {
    converse: extern "C" fn(c_int, *mut *const Message, *mut *mut Response, *mut c_void) -> c_int,
    data: *mut c_void,
}

type Handle = *mut c_void;
type Start =
    unsafe extern "C" fn(*const c_char, *const c_char, *const Conversation, *mut Handle) -> c_int;
type StartIn = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const Conversation,
    *const c_char,
    *mut Handle,
) -> c_int;
type Step = unsafe extern "C" fn(Handle, c_int) -> c_int;
type SetItem = unsafe extern "C" fn(Handle, c_int, *const c_void) -> c_int;
type Item = unsafe extern "C" fn(Handle, c_int, *mut *const c_void) -> c_int;
type StrError = unsafe extern "C" fn(Handle, c_int) -> *const c_char;

/// The functions of libpam, by symbol.
pub(crate) struct Functions {
    start: Start,
    /// `pam_start_confdir`, available since Linux-PAM 1.4.
    start_in: Option<StartIn>,
    end: Step,
    authenticate: Step,
    account: Step,
    set_item: SetItem,
    item: Item,
    words: StrError,
    /// The functions are valid as long as the library is loaded.
    _library: Library,
}

impl Functions {
    /// Loads the library. The error is the dynamic linker's.
    pub(crate) fn load() -> Result<Self, libloading::Error> {
        // SAFETY: only the initialisers of a system library run now, in a process with one thread.
        let library = unsafe { Library::new(LIBRARY) }?;
        // SAFETY: the type is that of pam_start(3).
        let start = *unsafe { library.get::<Start>("pam_start") }?;
        // SAFETY: the type is that of pam_start_confdir(3).
        let start_in = unsafe { library.get::<StartIn>("pam_start_confdir") };
        let start_in = start_in.map(|start| *start).ok();
        // SAFETY: the type is that of pam_end(3).
        let end = *unsafe { library.get::<Step>("pam_end") }?;
        // SAFETY: the type is that of pam_authenticate(3).
        let authenticate = *unsafe { library.get::<Step>("pam_authenticate") }?;
        // SAFETY: the type is that of pam_acct_mgmt(3).
        let account = *unsafe { library.get::<Step>("pam_acct_mgmt") }?;
        // SAFETY: the type is that of pam_set_item(3).
        let set_item = *unsafe { library.get::<SetItem>("pam_set_item") }?;
        // SAFETY: the type is that of pam_get_item(3).
        let item = *unsafe { library.get::<Item>("pam_get_item") }?;
        // SAFETY: the type is that of pam_strerror(3).
        let words = *unsafe { library.get::<StrError>("pam_strerror") }?;
        Ok(Self {
            start,
            start_in,
            end,
            authenticate,
            account,
            set_item,
            item,
            words,
            _library: library,
        })
    }

    /// Returns whether the library supports services whose rules are in a folder other than the
    /// system's.
    pub(crate) fn knows_folders(&self) -> bool {
        self.start_in.is_some()
    }

    /// Starts a transaction, whose conversation is handled by `talk`. The error is PAM's code.
    pub(crate) fn start<'t>(
        &'t self,
        service: &CStr,
        folder: Option<&CStr>,
        talk: &'t PamCredentials,
    ) -> Result<Transaction<'t>, c_int> {
        let conversation = Conversation {
            converse,
            data: ptr::from_ref(talk).cast_mut().cast(),
        };
        let user = talk.user.as_ptr();
        let mut handle: Handle = ptr::null_mut();
        let code = match (folder, self.start_in) {
            (None, _) => {
                // SAFETY: all pointers are valid for the call, and the library copies what it
                // keeps, except `talk`, whose lifetime lasts longer than the transaction.
                unsafe {
                    (self.start)(
                        service.as_ptr(),
                        user,
                        &raw const conversation,
                        &raw mut handle,
                    )
                }
            }
            (Some(folder), Some(start)) => {
                let (service, folder) = (service.as_ptr(), folder.as_ptr());
                // SAFETY: as above.
                unsafe {
                    start(
                        service,
                        user,
                        &raw const conversation,
                        folder,
                        &raw mut handle,
                    )
                }
            }
            (Some(_), None) => return Err(ABORT),
        };
        if code != SUCCESS || handle.is_null() {
            return Err(code);
        }
        Ok(Transaction {
            functions: self,
            handle,
            code,
            _talk: talk,
        })
    }

    /// Returns PAM's description of a code.
    pub(crate) fn describe(&self, code: c_int) -> String {
        // SAFETY: Linux-PAM does not look at the handle.
        let words = unsafe { (self.words)(ptr::null_mut(), code) };
        if words.is_null() {
            return format!("PAM error {code}");
        }
        // SAFETY: `words` is not null and points to a constant string.
        let words = unsafe { CStr::from_ptr(words) };
        words.to_string_lossy().into_owned()
    }
}

/// A transaction between `pam_start` and `pam_end`.
pub(crate) struct Transaction<'t> {
    functions: &'t Functions,
    handle: Handle,
    /// The PAM code that the last call returned.
    code: c_int,
    _talk: &'t PamCredentials,
}

impl Transaction<'_> {
    /// Sets the client's address.
    pub(crate) fn set_client(&mut self, client: &CStr) -> Result<(), c_int> {
        let client = client.as_ptr().cast();
        // SAFETY: the handle is open, and the item is copied.
        self.code = unsafe { (self.functions.set_item)(self.handle, RHOST, client) };
        self.result()
    }

    /// Authenticates the user: pam_authenticate(3).
    pub(crate) fn authenticate(&mut self) -> Result<(), c_int> {
        // SAFETY: the handle is open.
        self.code = unsafe { (self.functions.authenticate)(self.handle, FLAGS) };
        self.result()
    }

    /// Checks the account: pam_acct_mgmt(3).
    pub(crate) fn account(&mut self) -> Result<(), c_int> {
        // SAFETY: the handle is open.
        self.code = unsafe { (self.functions.account)(self.handle, FLAGS) };
        self.result()
    }

    /// Returns the user name, which PAM modules may have changed.
    pub(crate) fn user(&self) -> Option<CString> {
        let mut user: *const c_void = ptr::null();
        // SAFETY: the handle is open, and the destination is a local variable.
        let code = unsafe { (self.functions.item)(self.handle, USER, &raw mut user) };
        if code != SUCCESS || user.is_null() {
            return None;
        }
        // SAFETY: the string belongs to the library and is copied before the next call.
        let user = unsafe { CStr::from_ptr(user.cast()) };
        Some(user.to_owned())
    }

    fn result(&self) -> Result<(), c_int> {
        match self.code {
            SUCCESS => Ok(()),
            code => Err(code),
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and is not used afterwards.
        unsafe { (self.functions.end)(self.handle, self.code) };
    }
}

/// The answers to the prompts of PAM modules.
pub(crate) struct PamCredentials {
    user: CString,
    /// The password, terminated by a NUL.
    password: Zeroizing<Vec<u8>>,
    /// Whether the password was sent. Any further prompt asks for something other than the
    /// password.
    is_password_sent: Cell<bool>,
}

impl PamCredentials {
    /// Creates credentials; `None` if the user name or the password contains a NUL.
    pub(crate) fn new(user: &str, password: &[u8]) -> Option<Self> {
        if password.contains(&0) {
            return None;
        }
        let mut ended = Zeroizing::new(Vec::with_capacity(password.len() + 1));
        ended.extend_from_slice(password);
        ended.push(0);
        Some(Self {
            user: CString::new(user).ok()?,
            password: ended,
            is_password_sent: Cell::new(false),
        })
    }

    /// Returns the answer to a message of this style, if it expects one. The error is PAM's code.
    fn answer(&self, style: c_int) -> Result<Option<&CStr>, c_int> {
        match style {
            PROMPT_ECHO_OFF if !self.is_password_sent.replace(true) => {
                let password = CStr::from_bytes_with_nul(&self.password);
                password.map(Some).map_err(|_| CONV_ERR)
            }
            PROMPT_ECHO_ON => Ok(Some(&self.user)),
            // Messages of modules are neither shown to clients nor logged, since they may contain
            // the password.
            ERROR_MSG | TEXT_INFO => Ok(None),
            _ => Err(CONV_ERR),
        }
    }
}

/// Answers the prompts of PAM modules; see pam_conv(3).
extern "C" fn converse(
    count: c_int,
    messages: *mut *const Message,
    responses: *mut *mut Response,
    data: *mut c_void,
) -> c_int {
    let count = match usize::try_from(count) {
        Ok(count @ 1..=MESSAGES_MAX) if !messages.is_null() && !responses.is_null() => count,
        _ => return CONV_ERR,
    };
    // SAFETY: `data` is the pointer that `start` passed to the library; the transaction keeps it borrowed.
    let talk = unsafe { &*data.cast::<PamCredentials>().cast_const() };
    let mut answers = [None; MESSAGES_MAX];
    for (place, answer) in answers.iter_mut().take(count).enumerate() {
        // SAFETY: Linux-PAM passes an array of `count` pointers.
        let message = unsafe { messages.add(place) };
        // SAFETY: as above.
        let message = unsafe { *message };
        if message.is_null() {
            return CONV_ERR;
        }
        // SAFETY: `message` points to a message for the duration of the call.
        let style = unsafe { (*message).style };
        match talk.answer(style) {
            Ok(text) => *answer = text,
            Err(code) => return code,
        }
    }
    // SAFETY: the library frees the array with free(3), as pam_conv(3) says; zeroes are a valid `Response`.
    let given: *mut Response = unsafe { libc::calloc(count, size_of::<Response>()) }.cast();
    if given.is_null() {
        return BUF_ERR;
    }
    for (place, text) in answers.iter().take(count).enumerate() {
        let Some(text) = text else { continue };
        // SAFETY: the text ends with a NUL; the library wipes and frees the copy.
        let text = unsafe { libc::strdup(text.as_ptr()) };
        if text.is_null() {
            forget(given, place);
            return BUF_ERR;
        }
        // SAFETY: `place` is below `count`, the number of allocated responses.
        let response = unsafe { given.add(place) };
        // SAFETY: as above.
        unsafe { (*response).text = text };
    }
    // SAFETY: the PAM library passes a valid `responses` pointer.
    unsafe { *responses = given };
    SUCCESS
}

/// Wipes and frees the texts of the first `made` answers, and frees the array of answers.
fn forget(given: *mut Response, made: usize) {
    for place in 0..made {
        // SAFETY: `given.add(place)` points to one of the allocated responses.
        let response = unsafe { given.add(place) };
        // SAFETY: as above.
        let text = unsafe { (*response).text };
        if text.is_null() {
            continue;
        }
        // SAFETY: `text` is a string from strdup.
        let length = unsafe { libc::strlen(text) };
        // SAFETY: `text` has `length` bytes.
        unsafe { libc::explicit_bzero(text.cast(), length) };
        // SAFETY: `text` was allocated by strdup.
        unsafe { libc::free(text.cast()) };
    }
    // SAFETY: `given` was allocated by calloc.
    unsafe { libc::free(given.cast()) };
}

/// Maximum length of a passwd entry in bytes.
const ENTRY_BYTES_MAX: usize = 64 << 10;

/// Returns an account's name as spelled in the user database; unchanged if there is no such account.
pub(crate) fn account_name(name: CString) -> CString {
    // SAFETY: zeroes are a valid `passwd`: numbers and null pointers.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut texts: Vec<c_char> = vec![0; ENTRY_BYTES_MAX];
    let mut found = ptr::null_mut();
    // SAFETY: all pointers are valid for the call, and the buffer has the given length.
    let code = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            &raw mut entry,
            texts.as_mut_ptr(),
            texts.len(),
            &raw mut found,
        )
    };
    if code != 0 || found.is_null() || entry.pw_name.is_null() {
        return name;
    }
    // SAFETY: `pw_name` points to a string in `texts`.
    let written = unsafe { CStr::from_ptr(entry.pw_name) };
    written.to_owned()
}

/// Closes every descriptor except the first three. Does nothing on kernels before 5.9, which lack `close_range`; this
/// program's own descriptors are close-on-exec in any case.
pub(crate) fn close_others() {
    // SAFETY: this process has not opened any descriptor yet, so the closed ones have no owner.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_given_once_and_nothing_else() {
        let talk = PamCredentials::new("ann", b"p:w").expect("no NUL");
        assert_eq!(talk.answer(PROMPT_ECHO_ON), Ok(Some(c"ann")));
        assert_eq!(talk.answer(TEXT_INFO), Ok(None));
        assert_eq!(talk.answer(ERROR_MSG), Ok(None));
        assert_eq!(talk.answer(PROMPT_ECHO_OFF), Ok(Some(c"p:w")));
        // A second prompt, for a second factor, fails.
        assert_eq!(talk.answer(PROMPT_ECHO_OFF), Err(CONV_ERR));
        // PAM_RADIO_TYPE, PAM_BINARY_PROMPT.
        assert_eq!(talk.answer(5), Err(CONV_ERR));
        assert_eq!(talk.answer(7), Err(CONV_ERR));
        assert!(
            PamCredentials::new("a\0b", b"").is_none()
                && PamCredentials::new("ann", b"a\0").is_none()
        );
    }

    #[test]
    fn accounts_have_one_name_and_others_keep_theirs() {
        for name in [c"root", c"no-such-account", c""] {
            assert_eq!(account_name(name.to_owned()).as_c_str(), name);
        }
    }

    #[test]
    fn a_conversation_is_answered_in_its_order() {
        let talk = PamCredentials::new("ann", b"secret").expect("no NUL");
        let message = |style| Message {
            style,
            text: ptr::null(),
        };
        let messages = [TEXT_INFO, PROMPT_ECHO_OFF, PROMPT_ECHO_ON].map(message);
        let mut pointers = [0, 1, 2].map(|place| ptr::from_ref(&messages[place]));
        let mut responses: *mut Response = ptr::null_mut();
        let data = ptr::from_ref(&talk).cast_mut().cast();
        let code = converse(3, pointers.as_mut_ptr(), &raw mut responses, data);
        assert_eq!(code, SUCCESS);
        for (place, expected) in [None, Some(c"secret"), Some(c"ann")]
            .into_iter()
            .enumerate()
        {
            // SAFETY: there are three responses, one for each message.
            let response = unsafe { responses.add(place) };
            // SAFETY: as above.
            let text = unsafe { (*response).text };
            assert_eq!(text.is_null(), expected.is_none());
            if let Some(expected) = expected {
                // SAFETY: the text ends with a zero byte.
                let found = unsafe { CStr::from_ptr(text) };
                assert_eq!(found, expected);
            }
        }
        forget(responses, 3);
        for count in [-1, 0, 33] {
            let code = converse(count, pointers.as_mut_ptr(), &raw mut responses, data);
            assert_eq!(code, CONV_ERR);
        }
    }
}
