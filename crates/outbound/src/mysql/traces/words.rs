//! Lists of words of SQL statements that are known to be harmless, and of a few that are not.

/// Returns whether a list contains a word, ignoring case.
pub(super) fn has(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one.eq_ignore_ascii_case(word))
}

/// Statements that change or read rows without affecting the session.
pub(super) const VERBS: &str = "\
    delete desc describe explain insert replace select show update values with";

/// Keywords that may precede a parenthesis and can't be unquoted function names.
pub(super) const NOT_FUNCTIONS: &str = "\
    against all and any as between bigint binary by case char columns decimal default distinct div else except \
    exists fields force from group having ignore in index intersect into is join key like limit not numeric on \
    or order over partition regexp rlike select set signed then union unsigned use using value values varchar \
    when where xor";

/// Words that precede the name of a table. A list of columns may follow the name. The words never
/// precede a function.
pub(super) const TABLE_FOLLOWS: &str = "\
    ignore insert into recursive replace";

/// Words that indicate side effects of a statement.
pub(super) const SUSPECT: &str = "\
    dumpfile nextval outfile procedure sql_calc_found_rows";

/// Functions that both MySQL and MariaDB have and that only read their arguments. Functions of only one of them are left out,
/// because the other server might have a stored function of that name.
pub(super) const FUNCTIONS: &str = "\
    abs acos adddate addtime aes_decrypt aes_encrypt ascii asin atan atan2 avg bin bit_and bit_count bit_length \
    bit_or bit_xor cast ceil ceiling char_length character_length coalesce collation concat concat_ws \
    connection_id conv convert convert_tz cos cot count crc32 cume_dist curdate current_date current_time \
    current_timestamp current_user curtime database date date_add date_format date_sub datediff datetime day \
    dayname dayofmonth dayofweek dayofyear degrees dense_rank elt exp extract field find_in_set first_value \
    floor format found_rows from_base64 from_days from_unixtime greatest group_concat hex hour if ifnull \
    inet6_aton inet6_ntoa inet_aton inet_ntoa insert instr interval is_free_lock is_used_lock isnull json_array \
    json_array_append json_array_insert json_arrayagg json_contains json_contains_path json_depth json_extract \
    json_insert json_keys json_length json_merge_patch json_merge_preserve json_object json_objectagg json_quote \
    json_remove json_replace json_search json_set json_type json_unquote json_valid lag last_day lcase lead \
    least left length ln localtime localtimestamp locate log log10 log2 lower lpad ltrim makedate maketime match \
    max md5 microsecond mid min minute mod month monthname now nth_value ntile nullif oct octet_length ord \
    percent_rank period_add period_diff pi position pow power quarter quote radians rand rank regexp_instr \
    regexp_replace regexp_substr repeat replace reverse right round row_count row_number rpad rtrim schema \
    sec_to_time second sha sha1 sha2 sign sin sleep soundex space sqrt std stddev stddev_pop stddev_samp \
    str_to_date strcmp subdate substr substring substring_index subtime sum sysdate tan time time_format \
    time_to_sec timediff timestamp timestampadd timestampdiff to_base64 to_days to_seconds trim truncate ucase \
    unhex unix_timestamp upper user utc_date utc_time utc_timestamp uuid uuid_short var_pop var_samp variance \
    version week weekday weekofyear year yearweek";
