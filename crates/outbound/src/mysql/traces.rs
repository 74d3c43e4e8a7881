//! Detects whether a statement may change the state of its session, such as a variable, a lock or a temporary table.
//!
//! The statement is split into tokens, and is harmless only if each token is known to be harmless; otherwise it counts as a
//! change. Changes by triggers, views and the functions in them can't be detected.

mod tokens;
mod words;

use tokens::{SqlToken, Tokens};
use words::{FUNCTIONS, NOT_FUNCTIONS, SUSPECT, TABLE_FOLLOWS, VERBS, has};

/// Returns whether a statement may change the state of its session, such as a variable or a lock.
pub(super) fn changes_session_state(sql: &str) -> bool {
    let mut tokens = Tokens::new(sql);
    let mut verb = tokens.next();
    while verb == Some(SqlToken::Symbol(b'(')) {
        verb = tokens.next();
    }
    let Some(mut before @ SqlToken::Word(verb)) = verb else {
        return true;
    };
    if !has(VERBS, verb) {
        return true;
    }
    let is_with = verb.eq_ignore_ascii_case("with");
    // Whether the previous token is the name of a table or a part of the name, so that a list of columns may follow.
    let mut is_table = false;
    while let Some(token) = tokens.next() {
        is_table = match (token, before) {
            (SqlToken::Symbol(b'.'), _) => is_table,
            (SqlToken::Word(_) | SqlToken::Quoted, SqlToken::Symbol(b'.')) => is_table,
            (SqlToken::Word(_) | SqlToken::Quoted, SqlToken::Word(before)) => {
                has(TABLE_FOLLOWS, before) || is_with && before.eq_ignore_ascii_case("with")
            }
            _ => false,
        };
        let is_of_schema = before == SqlToken::Symbol(b'.');
        let leaves = match token {
            SqlToken::Unknown => true,
            SqlToken::Symbol(b';') => return tokens.next().is_some(),
            // `@@name` reads a setting; `@name` is a variable.
            SqlToken::Symbol(b'@') => !tokens.take_symbol(b'@'),
            SqlToken::Symbol(_) => false,
            // A statement that takes the next number of a sequence leaves a trace: the session stores that number.
            SqlToken::Word(word)
                if has(SUSPECT, word) || is_pair(before, word, ["next", "value"]) =>
            {
                true
            }
            _ if is_table => false,
            SqlToken::Word(word) if !is_of_schema => is_harmful_call(word, &tokens),
            // A call of a stored function in a schema may have any effect.
            SqlToken::Word(_) | SqlToken::Quoted => tokens.is_call(),
        };
        if leaves {
            return true;
        }
        before = token;
    }
    false
}

fn is_pair(before: SqlToken<'_>, word: &str, pair: [&str; 2]) -> bool {
    let [first, second] = pair;
    matches!(before, SqlToken::Word(before) if before.eq_ignore_ascii_case(first))
        && word.eq_ignore_ascii_case(second)
}

/// Returns whether a word without a preceding schema calls a function that is not known to be
/// harmless.
fn is_harmful_call(word: &str, behind: &Tokens<'_>) -> bool {
    if !behind.is_call() || has(NOT_FUNCTIONS, word) {
        return false;
    }
    if word.eq_ignore_ascii_case("last_insert_id") {
        // `last_insert_id` with an argument sets a value of the session.
        return !behind.is_empty_call();
    }
    // If white space precedes the parenthesis, some names of built-in functions refer to stored functions instead.
    !(behind.is_call_at_once() && has(FUNCTIONS, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_without_session_effects_need_no_reset() {
        for sql in [
            "select 1",
            " \n(SELECT a, `b` FROM t WHERE id = ?) UNION (select 2, 3);",
            "select 1 ; -- the end",
            "insert into t (a, b) values (?, ?), (?, now())",
            "insert ignore into t(a) select a from u where b in (?, ?)",
            "insert t (a) values (?)",
            "insert into s.t set a = ?",
            "insert into `s`.`t` (`a`, b) values (?, ?)",
            "insert into s . t (a) values (default(a))",
            "insert into t (a) values (?) on duplicate key update a = values(a)",
            "insert into t (a) values (?) returning id",
            "select s.t.a from s.t where s.t.a in (1)",
            "replace into t (a) values (?)",
            "update t set a = coalesce(?, a), b = b + 1 where id = ?",
            "delete from t where a = 'into @x' or b = \"x := 1\"",
            "select count(*), max(a) from t group by b having count(*) > 1",
            "select a from t where b in (?) and (c = 1 or d like (?)) limit 1",
            "select row_number() over (partition by a order by b) from t",
            "select cast(a as decimal (10, 2)), left(b, 3) from t use index (i) for update",
            "select a->>'$.x' as x, !b, ~c, d <=> e from t",
            "with recent (a) as (select 1) select * from recent",
            "with recursive n (i) as (select 1 union all select i + 1 from n) select i from n",
            "select @@version, @@session.sql_mode, 'it''s', 'a\\\\'",
            "select '\\%', \"\\n\", '\\\\', 'a\\\\''b'",
            "select 1 -- into @x\n",
            "select 1 --",
            "select 1--1",
            "select 1 /* := get_lock('a', 1) */",
            "select 1 /**/, 2 /***/, 3 /*+ SET_VAR(a = 1) */",
            "select a from t # @x",
            "select id from t where a = last_insert_id()",
            "show tables",
            "explain select 1",
            "select 'вече', вече from `@x` where a = N'x' and b = x'00' and c = _utf8mb4'x'",
        ] {
            assert!(!changes_session_state(sql), "{sql}");
        }
    }

    #[test]
    fn whatever_may_leave_something_is_cleaned_up_after() {
        for sql in [
            // Statements that set or read a variable.
            "select 1 into  @x",
            "select 1 into\n@x",
            "select 1 into/**/@x",
            "select @x:=1",
            "select @x := 1",
            "select @x",
            "select @`x`",
            "select @'x'",
            "select @\"x\" := 1",
            "select @@session.sql_mode := ''",
            "select @@x, @y",
            "update t set a = (@a := a + 1)",
            "set names utf8mb4",
            "set @x = 1",
            // Statements that take or release a lock.
            "select Get_Lock ('a', 1)",
            "select get_lock/**/('a', 1)",
            "select get_lock -- a comment\n('a', 1)",
            "select get_lock\u{b}('a', 1)",
            "select `get_lock`('a', 1)",
            "select release_all_locks()",
            "lock tables t read",
            "values (get_lock('a', 1))",
            "insert into t values (1, get_lock('a', 1))",
            "explain analyze select get_lock('a', 1)",
            "select {fn get_lock('a', 1)}",
            // Functions that are not known to be harmless.
            "select my_function(1)",
            "select s.count(1)",
            "select s . count (1)",
            "select s.value(1)",
            "select count (1)",
            "select `my_function`(1)",
            "select `s`.`my_function` (1)",
            "select \"my_function\"(1)",
            "select вече(1)",
            "select a$(1)",
            "select 1f(2)",
            "with a as (select 1) select 1, f(2) from a",
            "with a as (select 1), f(x) as (select 2) select * from f",
            "insert into t (a) select f(1)",
            "insert into t(a) values (into_(1))",
            "call p()",
            "do f()",
            // Functions and clauses with which a select statement changes a value that the server keeps.
            "select last_insert_id(7)",
            "select last_insert_id( /* x */ 7)",
            "select sql_calc_found_rows 1",
            "select next value for s",
            "select nextval(s)",
            "insert into t values (next\nvalue for s)",
            // SQL comments that are executed, or that end elsewhere than they appear to.
            "select /*! get_lock('a', 1), */ 1",
            "select /*!50000 1 */",
            "select /*M! 1 */",
            "select 1 /*/ '*/ into @x -- '",
            "select 1 --x\n into @x",
            "select 1 /* never ends",
            // Strings that end elsewhere in another SQL mode.
            "select 'a\\' , @x:=1, '",
            "select 'a\\\\\\' , @x:=1, '",
            "select \"a\\\" , @x:=1, \"",
            "select 'unfinished",
            "select `unfinished",
            "select 'ends in a backslash\\",
            // Statements with other verbs, several statements in one text, and texts that are not a statement.
            "use shop",
            "create temporary table t (a int)",
            "prepare s from 'select 1'",
            "execute s",
            "begin",
            "handler t open",
            "analyze table t",
            "load data infile 'x' into table t",
            "select 1 into outfile '/tmp/x'",
            "select 1; set @x = 1",
            "select 1;;",
            "select 1 \u{1} ",
            "\u{feff}select 1",
            "(",
            "'select' 1",
            "",
            " -- nothing\n",
        ] {
            assert!(changes_session_state(sql), "{sql}");
        }
    }
}
