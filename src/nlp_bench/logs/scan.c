/* One pass over a block of a log: where lines hold one of some words, and the numbers of those that fit a grammar.
 *
 * Plain C, called through ctypes (scan.py mirrors the structs and says what the grammar is); nothing of Python here, so
 * that one object serves every interpreter. Candidates are found as in Teddy (Hyperscan; Wang et al., NSDI 2019): three
 * bytes of each word, looked up by nibble for 32 places at once, each word in one of eight buckets.
 */
#define _GNU_SOURCE
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "-ffast-math takes a value that is missing (NaN) for a number: add -fno-fast-math behind it"
#endif

#define INTERFACE 5 /* raised with every change that scan.py has to know */
#define MAX_PIECES 64
#define MAX_COLUMNS 64
#define MAX_NUMBER_BYTES 64
#define HASH_BASIS UINT64_C(0xcbf29ce484222325)
#define HASH_PRIME UINT64_C(0x100000001b3)

typedef uint8_t byte;

struct word {
  const byte *text;
  int64_t length;
  int64_t shift; /* place in the word of the first of its three bytes that are looked up */
};

struct key {
  const byte *text;
  int64_t length;
  int64_t column;
  double divisor;
  int64_t is_count;
};

struct plan {
  byte table[3][256]; /* buckets that may have this byte in this place */
  byte low[3][16];    /* the same by nibble */
  byte high[3][16];
  int64_t bucket[9]; /* words[bucket[i]] to words[bucket[i + 1] - 1] are in bucket i */
  const struct word *words;
  const byte *start; /* NULL: no grammar */
  int64_t start_length;
  const struct key *keys;
  int64_t num_keys;
  int64_t num_columns;
  const int64_t *required;
  int64_t num_required;
  int64_t stamp;                /* column of the time in front of the record, -1 for none */
  int64_t num_checked;          /* places where the tables let a word pass, whether it stood there or not */
  int64_t expected[MAX_PIECES]; /* which key the piece in this place had last, num_keys for none */
};

struct output {
  int64_t at;            /* in and out: where to go on */
  int64_t num_line_ends; /* in and out: line feeds passed */
  double *values;        /* one column after the other, each of max_rows */
  uint64_t given;        /* in and out: bit i: a row has a value in column i; other columns are not written */
  int64_t *row_begin;
  int64_t *row_number; /* line feeds before the line */
  int64_t *row_label;
  int64_t max_rows;
  int64_t num_rows;
  int64_t *line_begin;
  int64_t *line_end;
  int64_t *line_number;
  uint64_t *line_shape;
  int64_t max_lines;
  int64_t num_lines;
  const uint64_t *shapes; /* of lines that are left out: a hash table with linear probing, 0 is an empty slot */
  const int64_t *kinds;   /* of each, an index into the next */
  const int64_t *until;   /* of a kind: 0 for ever; as long as it is one of the next two */
  int64_t change;
  int64_t record;
  int64_t num_slots; /* of the table, a power of two */
};

typedef const byte *(*finder)(struct plan *, const byte *, const byte *, int64_t *);

/* ---- Finding words ---- */

/* Whether a word lies around `at`, inside [begin, end). */
static int is_word_at(struct plan *plan, const byte *begin, const byte *at, const byte *end)
{
  /* No word holds a line feed: its entries are those of words that are shorter than three bytes. */
  byte second = end - at > 1 ? at[1] : '\n', third = end - at > 2 ? at[2] : '\n';
  unsigned buckets = plan->table[0][*at] & plan->table[1][second] & plan->table[2][third];
  for (; buckets; buckets &= buckets - 1) {
    int bucket = __builtin_ctz(buckets);
    for (int64_t i = plan->bucket[bucket]; i < plan->bucket[bucket + 1]; i++) {
      const struct word *word = &plan->words[i];
      const byte *looked_up = word->text + word->shift;
      if (*looked_up == *at && (word->length == 1 || looked_up[1] == second) && at - begin >= word->shift &&
          end - at >= word->length - word->shift &&
          !memcmp(at - word->shift, word->text, (size_t)word->length))
        return 1;
    }
  }
  return 0;
}

/* Each finder returns a place inside the first word of [begin, end), or NULL; it adds the line feeds before it. */
static const byte *find_from(struct plan *plan, const byte *begin, const byte *at, const byte *end, int64_t *ends)
{
  for (; at < end; at++) {
    if (is_word_at(plan, begin, at, end))
      return at;
    *ends += *at == '\n';
  }
  return NULL;
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,bmi,popcnt")))
#define WIDTH 32

AVX2 static inline __m256i buckets_avx2(__m256i text, __m256i low, __m256i high)
{
  __m256i nibble = _mm256_set1_epi8(15);
  return _mm256_and_si256(_mm256_shuffle_epi8(low, _mm256_and_si256(text, nibble)),
                          _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16(text, 4), nibble)));
}

AVX2 static inline __m256i twice(const byte *table)
{
  return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
}

AVX2 static inline int64_t sum_avx2(__m256i counts)
{
  __m256i sums = _mm256_sad_epu8(counts, _mm256_setzero_si256());
  return _mm256_extract_epi64(sums, 0) + _mm256_extract_epi64(sums, 1) + _mm256_extract_epi64(sums, 2) +
         _mm256_extract_epi64(sums, 3);
}

AVX2 static const byte *find_avx2(struct plan *plan, const byte *begin, const byte *end, int64_t *ends)
{
  const __m256i low0 = twice(plan->low[0]), low1 = twice(plan->low[1]), low2 = twice(plan->low[2]);
  const __m256i high0 = twice(plan->high[0]), high1 = twice(plan->high[1]), high2 = twice(plan->high[2]);
  const __m256i zero = _mm256_setzero_si256(), feed = _mm256_set1_epi8('\n');
  const byte *at = begin;
  while (end - at >= WIDTH + 2) {
    __m256i counts = zero; /* each byte holds up to 255 line feeds */
    for (int left = 255; left && end - at >= WIDTH + 2; left--, at += WIDTH) {
      __m256i text = _mm256_loadu_si256((const __m256i *)at);
      __m256i found = buckets_avx2(text, low0, high0);
      found = _mm256_and_si256(found, buckets_avx2(_mm256_loadu_si256((const __m256i *)(at + 1)), low1, high1));
      found = _mm256_and_si256(found, buckets_avx2(_mm256_loadu_si256((const __m256i *)(at + 2)), low2, high2));
      __m256i feeds = _mm256_cmpeq_epi8(text, feed);
      if (__builtin_expect(!_mm256_testz_si256(found, found), 0)) {
        uint32_t places = ~(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(found, zero));
        for (; places; places &= places - 1) {
          int place = __builtin_ctz(places);
          plan->num_checked++;
          if (is_word_at(plan, begin, at + place, end)) {
            uint32_t before = (uint32_t)_mm256_movemask_epi8(feeds) & ((UINT32_C(1) << place) - 1);
            *ends += sum_avx2(counts) + __builtin_popcount(before);
            return at + place;
          }
        }
      }
      counts = _mm256_sub_epi8(counts, feeds);
    }
    *ends += sum_avx2(counts);
  }
  return find_from(plan, begin, at, end, ends);
}
#elif defined(__aarch64__)
#define WIDTH 16

static inline uint8x16_t buckets_neon(uint8x16_t text, uint8x16_t low, uint8x16_t high)
{
  return vandq_u8(vqtbl1q_u8(low, vandq_u8(text, vdupq_n_u8(15))), vqtbl1q_u8(high, vshrq_n_u8(text, 4)));
}

static const byte *find_neon(struct plan *plan, const byte *begin, const byte *end, int64_t *ends)
{
  const uint8x16_t low0 = vld1q_u8(plan->low[0]), low1 = vld1q_u8(plan->low[1]), low2 = vld1q_u8(plan->low[2]);
  const uint8x16_t high0 = vld1q_u8(plan->high[0]), high1 = vld1q_u8(plan->high[1]), high2 = vld1q_u8(plan->high[2]);
  const byte *at = begin;
  while (end - at >= WIDTH + 2) {
    uint8x16_t counts = vdupq_n_u8(0); /* each byte holds up to 255 line feeds */
    for (int left = 255; left && end - at >= WIDTH + 2; left--, at += WIDTH) {
      uint8x16_t text = vld1q_u8(at);
      uint8x16_t found = buckets_neon(text, low0, high0);
      found = vandq_u8(found, buckets_neon(vld1q_u8(at + 1), low1, high1));
      found = vandq_u8(found, buckets_neon(vld1q_u8(at + 2), low2, high2));
      if (__builtin_expect(vmaxvq_u8(found) != 0, 0)) {
        byte buckets[WIDTH];
        vst1q_u8(buckets, found);
        for (int place = 0; place < WIDTH; place++) {
          if (!buckets[place])
            continue;
          plan->num_checked++;
          if (is_word_at(plan, begin, at + place, end)) {
            for (int i = 0; i < place; i++)
              *ends += at[i] == '\n';
            *ends += vaddlvq_u8(counts);
            return at + place;
          }
        }
      }
      counts = vsubq_u8(counts, vceqq_u8(text, vdupq_n_u8('\n')));
    }
    *ends += vaddlvq_u8(counts);
  }
  return find_from(plan, begin, at, end, ends);
}
#endif

static const byte *find_plain(struct plan *plan, const byte *begin, const byte *end, int64_t *ends)
{
  return find_from(plan, begin, begin, end, ends);
}

static finder best_finder(void)
{
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") ? find_avx2 : find_plain;
#elif defined(__aarch64__)
  return find_neon;
#else
  return find_plain;
#endif
}

/* ---- Reading a line that fits the grammar ---- */

static const byte *skip_blanks(const byte *at, const byte *end)
{
  while (at < end && (*at == ' ' || *at == '\t'))
    at++;
  return at;
}

static int is_digit(byte character) { return (unsigned)character - '0' < 10; }

static int is_name(byte character)
{
  return is_digit(character) || (unsigned)(character | 32) - 'a' < 26 || character == '_' || character == '-';
}

/* Whether there is an escape, a carriage return or anything that is not ASCII. */
static int is_unsafe(const byte *at, const byte *end)
{
  byte unsafe = 0;
  for (; at < end; at++)
    unsafe |= (byte)((*at == 0x1b) | (*at == '\r') | (*at >> 7));
  return unsafe;
}

/* Read a count of 1 to 18 digits; returns what follows it, NULL where there is none. */
static const byte *read_count(const byte *at, const byte *end, double *value)
{
  const byte *begin = at;
  uint64_t count = 0;
  for (; at < end && at - begin < 19 && is_digit(*at); at++)
    count = count * 10 + (*at - '0');
  *value = (double)count;
  return at > begin && at - begin < 19 ? at : NULL;
}

static locale_t plain_locale;

/* The correctly rounded value of a number that is known to be well-formed, whatever decimal point the locale has. */
static double read_slowly(const byte *at, const byte *end)
{
  char text[MAX_NUMBER_BYTES + 1];
  memcpy(text, at, (size_t)(end - at));
  text[end - at] = 0;
  return plain_locale ? strtod_l(text, NULL, plain_locale) : NAN;
}

/* Read digits into *mantissa as long as they fit and return what follows; *dropped: those that did not fit. */
static const byte *read_digits(const byte *at, const byte *end, uint64_t *mantissa, int64_t *dropped)
{
  for (; at < end && is_digit(*at); at++) {
    if (*mantissa < UINT64_C(100000000000000000))
      *mantissa = *mantissa * 10 + (*at - '0');
    else
      ++*dropped;
  }
  return at;
}

/* Read [-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)? of at most 64 bytes; returns what follows it, NULL where there is none. */
static const byte *read_number(const byte *begin, const byte *end, double *value)
{
  static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  const byte *at = begin + (begin < end && (*begin == '-' || *begin == '+'));
  uint64_t mantissa = 0, exponent = 0;
  int64_t dropped = 0, scale = 0;
  const byte *digits = at;
  at = read_digits(at, end, &mantissa, &dropped);
  int64_t num_digits = at - digits;
  if (at < end && *at == '.') {
    const byte *fraction = at + 1;
    at = read_digits(fraction, end, &mantissa, &dropped);
    scale = fraction - at;
    num_digits -= scale;
  }
  if (!num_digits)
    return NULL;
  if (at < end && (*at | 32) == 'e') {
    int is_negative = end - at > 1 && at[1] == '-';
    const byte *power = at + 1 + (end - at > 1 && (at[1] == '-' || at[1] == '+'));
    at = read_digits(power, end, &exponent, &dropped);
    if (at == power)
      return NULL;
    scale += is_negative ? -(int64_t)exponent : (int64_t)exponent;
  }
  if (at - begin > MAX_NUMBER_BYTES)
    return NULL;
  /* Both operands are exact, so the one operation rounds correctly (Clinger 1990). */
  if (FLT_EVAL_METHOD == 0 && !dropped && mantissa <= UINT64_C(1) << 53 && scale >= -22 && scale <= 22) {
    double number = (double)mantissa;
    number = scale < 0 ? number / powers[-scale] : number * powers[scale];
    *value = *begin == '-' ? -number : number;
  } else {
    *value = read_slowly(begin, at);
  }
  return at;
}

static int are_digits(const byte *at, int count)
{
  while (count && is_digit(*at))
    at++, count--;
  return !count;
}

static int two_digits(const byte *at) { return (at[0] - '0') * 10 + (at[1] - '0'); }

static int is_clock(const byte *at, const byte *end)
{
  return end - at >= 8 && at[2] == ':' && at[5] == ':' && are_digits(at, 2) && are_digits(at + 3, 2) &&
         are_digits(at + 6, 2);
}

/* The end of a stamp `2026-01-31 23:59:59,123` that begins at `at`, NULL where there is none; PLAIN_STAMP in clean.py. */
static const byte *skip_stamp(const byte *begin, const byte *at, const byte *end)
{
  if (end - at < 19 || (at > begin && is_digit(at[-1])) || !are_digits(at, 4) || (at[4] != '-' && at[4] != '/') ||
      !are_digits(at + 5, 2) || (at[7] != '-' && at[7] != '/') || !are_digits(at + 8, 2) ||
      (at[10] != 'T' && at[10] != ' ') || !is_clock(at + 11, end))
    return NULL;
  const byte *last = at + 19;
  if (end - last > 1 && (*last == '.' || *last == ',') && is_digit(last[1])) {
    for (last++; last < end && is_digit(*last) && last - at < 29; last++)
      ;
  }
  int is_point = end - last > 1 && (*last == '.' || *last == ',') && is_digit(last[1]);
  if (last < end && (is_point || is_digit(*last) || *last == ':' || *last == 'Z' || *last == '+' || *last == '-'))
    return NULL; /* a zone, or no time at all */
  const byte *half = last < end && *last == ' ' ? last + 1 : last; /* AM or pm */
  if (end - half > 1 && ((*half | 32) == 'a' || (*half | 32) == 'p') && half[1] == ('M' | (*half & 32)) &&
      (end - half == 2 || !is_name(half[2])))
    return NULL;
  return last;
}

/* Put the time of day in [begin, end) into *value; 0 when it is of another form than that of skip_stamp. */
static int read_stamp(const byte *begin, const byte *end, double *value)
{
  static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
  static const int days_before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const byte *clock = begin;
  while (clock < end && !is_clock(clock, end))
    clock++;
  if (clock == end)
    return 1;
  const byte *at = clock - 11, *last = clock - begin < 11 ? NULL : skip_stamp(begin, at, end);
  if (!last)
    return 0;
  int64_t year = two_digits(at) * 100 + two_digits(at + 2), month = two_digits(at + 5), day = two_digits(at + 8);
  int is_leap = year % 4 == 0 && (year % 100 || year % 400 == 0);
  if (year < 1 || month < 1 || month > 12 || day < 1 || day > lengths[month - 1] + (is_leap && month == 2) ||
      two_digits(clock) > 23 || two_digits(clock + 3) > 59 || two_digits(clock + 6) > 59)
    return 0;
  int64_t before = year - 1, days = before * 365 + before / 4 - before / 100 + before / 400 + days_before[month - 1] +
                                    (is_leap && month > 2) + day - 719163;
  int64_t seconds = days * 86400 + two_digits(clock) * 3600 + two_digits(clock + 3) * 60 + two_digits(clock + 6);
  int64_t fraction = 0, num_digits = last - clock > 9 ? last - clock - 9 : 0;
  for (int64_t i = 0; i < num_digits; i++)
    fraction = fraction * 10 + (clock[9 + i] - '0');
  *value = num_digits ? (double)seconds + (double)fraction / powers[num_digits] : (double)seconds;
  return 1;
}

/* FNV-1a over what stands before the record, without blanks and time stamps; see label_of in scan.py. */
static int64_t label_of(const byte *begin, const byte *end)
{
  uint64_t label = HASH_BASIS;
  for (const byte *at = begin; at < end; at++) {
    if (*at == ' ' || *at == '\t')
      continue;
    const byte *stamp_end = is_digit(*at) ? skip_stamp(begin, at, end) : NULL;
    if (stamp_end) {
      at = stamp_end - 1;
      continue;
    }
    if (end - at > 6 && !memcmp(at, "[20", 3) && is_digit(at[3]) && is_digit(at[4]) &&
        (at[5] == '-' || at[5] == '/' || at[5] == '.')) {
      const byte *close = memchr(at + 6, ']', (size_t)(end - at - 6));
      if (close) {
        at = close;
        continue;
      }
    }
    label = (label ^ *at) * HASH_PRIME;
  }
  return (int64_t)(label ^ HASH_BASIS);
}

/* Return the first place of the text in [at, end) or NULL; on so short a stretch memmem would take longer to begin. */
static const byte *find_text(const byte *at, const byte *end, const byte *text, int64_t length)
{
  while (end - at >= length && (at = memchr(at, *text, (size_t)(end - at - length + 1)))) {
    if (!memcmp(at, text, (size_t)length))
      return at;
    at++;
  }
  return NULL;
}

static int is_key(const struct key *key, const byte *text, int64_t length)
{
  return key->length <= length && !memcmp(key->text, text, (size_t)key->length);
}

/* Return the number of the key at `at` and put the place of its colon into *colon; num_keys: unknown. */
static int64_t find_key(struct plan *plan, int64_t place, const byte *at, const byte *end, const byte **colon)
{
  int64_t *expected = place < MAX_PIECES ? &plan->expected[place] : NULL;
  if (expected && *expected < plan->num_keys && is_key(&plan->keys[*expected], at, end - at)) {
    *colon = skip_blanks(at + plan->keys[*expected].length, end);
    if (*colon < end && **colon == ':')
      return *expected;
  }
  for (*colon = at; *colon < end && **colon != ':' && **colon != '|'; ++*colon)
    ;
  const byte *last = *colon;
  while (last > at && (last[-1] == ' ' || last[-1] == '\t'))
    last--;
  int64_t found = 0;
  while (found < plan->num_keys && !(plan->keys[found].length == last - at && is_key(&plan->keys[found], at, last - at)))
    found++;
  if (expected)
    *expected = found;
  return found;
}

/* Whether another record begins in a piece that means nothing to the grammar. */
static int is_start_in(const struct plan *plan, const byte *at, const byte *end)
{
  while ((at = find_text(at, end, plan->start, plan->start_length))) {
    at += plan->start_length;
    const byte *next = skip_blanks(at, end);
    if (next < end && is_digit(*next))
      return 1;
  }
  return 0;
}

/* Read `key : value |`; returns what follows the bar, NULL when the line is no row. */
static const byte *read_piece(struct plan *plan, int64_t place, const byte *at, const byte *end, double *values)
{
  const byte *colon;
  int64_t found = find_key(plan, place, at, end, &colon);
  if (colon == end || *colon != ':')
    return NULL;
  if (found == plan->num_keys) {
    const byte *bar = memchr(colon, '|', (size_t)(end - colon));
    return bar && !is_start_in(plan, at, bar) ? bar + 1 : NULL;
  }
  const struct key *key = &plan->keys[found];
  double value;
  const byte *number = skip_blanks(colon + 1, end);
  const byte *after = key->is_count ? read_count(number, end, &value) : read_number(number, end, &value);
  if (!after || !isnan(values[key->column]))
    return NULL;
  value /= key->divisor;
  values[key->column] = value;
  after = skip_blanks(after, end);
  return after < end && *after == '|' && isfinite(value) ? after + 1 : NULL;
}

/* Read the line [line, end), which had a line feed, into `values`; 0 when it does not fit the grammar. */
static int read_row(struct plan *plan, const byte *line, const byte *end, double *values, int64_t *label)
{
  const byte *start = plan->start ? find_text(line, end, plan->start, plan->start_length) : NULL;
  if (!start || (start > line && is_name(start[-1])))
    return 0;
  end -= end[-1] == '\r';
  const byte *at = start + plan->start_length, *number = skip_blanks(at, end);
  if (number == at || !(at = read_count(number, end, &values[0])))
    return 0;
  at = skip_blanks(at, end);
  if (at == end || *at != '/' || !(at = read_count(skip_blanks(at + 1, end), end, &values[1])))
    return 0;
  at = skip_blanks(at, end);
  if (at == end || *at != '|' || is_unsafe(line, end))
    return 0;
  for (int64_t i = 2; i < plan->num_columns; i++)
    values[i] = NAN;
  int64_t place = 0;
  for (at = skip_blanks(at + 1, end); at < end; at = skip_blanks(at, end)) {
    if (!(at = read_piece(plan, place++, at, end, values)))
      return 0;
  }
  for (int64_t i = 0; i < plan->num_required; i++) {
    if (isnan(values[plan->required[i]]))
      return 0;
  }
  if (plan->stamp >= 0 && isnan(values[plan->stamp]) && !read_stamp(line, start, &values[plan->stamp]))
    return 0;
  *label = label_of(line, start);
  return place > 0;
}

/* Add a row to those of `out`. */
static void put_row(struct output *out, const double *values, int64_t num_columns)
{
  for (int64_t i = 0; i < num_columns; i++) {
    double *column = out->values + i * out->max_rows;
    if (!(out->given >> i & 1)) {
      if (isnan(values[i]))
        continue;
      out->given |= UINT64_C(1) << i;
      for (int64_t row = 0; row < out->num_rows; row++)
        column[row] = NAN;
    }
    column[out->num_rows] = values[i];
  }
}

/* ---- Shapes ---- */

/* Four words of a line in which the bytes '0' to '9' and 'a' to 'f' are 0: what differs from one line of a kind to the next. */
static inline void mask_plain(const byte *at, uint64_t *words)
{
  const uint64_t ones = UINT64_C(0x0101010101010101), high = ones << 7;
  memcpy(words, at, 32);
  for (int i = 0; i < 4; i++) {
    uint64_t low = words[i] & ~high;
    uint64_t is_number = (low + ones * (128 - '0')) & ~(low + ones * (127 - '9'));
    uint64_t is_letter = (low + ones * (128 - 'a')) & ~(low + ones * (127 - 'f'));
    uint64_t is_either = (is_number | is_letter) & ~words[i] & high;
    words[i] &= ~((is_either >> 7) * 255);
  }
}

static inline uint64_t mixed(uint64_t lane, uint64_t word)
{
  lane = (lane ^ word) * UINT64_C(0x9e3779b97f4a7c15); /* 2^64 / golden ratio (Knuth 1973, 6.4) */
  return lane ^ lane >> 32;
}

/* A hash of the line without the values of its hexadecimal digits, never 0; of four lanes, so that none waits for another. */
static inline __attribute__((always_inline)) uint64_t shape_with(const byte *at, const byte *end,
                                                                 void (*mask)(const byte *, uint64_t *))
{
  uint64_t lanes[4] = {(uint64_t)(end - at), 1, 2, 3}, words[4], shape = 0;
  byte rest[32] = {0};
  for (; end - at >= 32; at += 32) {
    mask(at, words);
    for (int i = 0; i < 4; i++)
      lanes[i] = mixed(lanes[i], words[i]);
  }
  memcpy(rest, at, (size_t)(end - at));
  mask(rest, words);
  for (int i = 0; i < 4; i++)
    shape = mixed(shape, mixed(lanes[i], words[i]));
  return shape ? shape : 1;
}

static uint64_t shape_plain(const byte *at, const byte *end) { return shape_with(at, end, mask_plain); }

#if defined(__x86_64__)
AVX2 static inline __m256i is_between_avx2(__m256i text, char first, char count)
{
  __m256i above = _mm256_sub_epi8(text, _mm256_set1_epi8(first));
  return _mm256_cmpeq_epi8(_mm256_min_epu8(above, _mm256_set1_epi8(count)), above);
}

AVX2 static inline void mask_avx2(const byte *at, uint64_t *words)
{
  __m256i text = _mm256_loadu_si256((const __m256i *)at);
  __m256i found = _mm256_or_si256(is_between_avx2(text, '0', 9), is_between_avx2(text, 'a', 5));
  _mm256_storeu_si256((__m256i *)words, _mm256_andnot_si256(found, text));
}

AVX2 static uint64_t shape_avx2(const byte *at, const byte *end) { return shape_with(at, end, mask_avx2); }

static uint64_t shape_of(finder find, const byte *at, const byte *end)
{
  return find == find_avx2 ? shape_avx2(at, end) : shape_plain(at, end);
}
#else
static uint64_t shape_of(finder find, const byte *at, const byte *end)
{
  (void)find;
  return shape_plain(at, end);
}
#endif

enum fate { TAKEN, LEFT_OUT, TAKEN_AS_LAST, TO_BE_ASKED_AGAIN };

/* What becomes of a line: one whose shape was left out for a time is decided on when all before it has been read. */
static enum fate fate_of(const struct output *out, uint64_t shape)
{
  uint64_t last = (uint64_t)out->num_slots - 1, slot = shape & last;
  while (out->shapes[slot] && out->shapes[slot] != shape)
    slot = (slot + 1) & last;
  if (!out->shapes[slot])
    return TAKEN;
  int64_t until = out->until[out->kinds[slot]];
  if (until && (out->num_lines || (out->num_rows && until != out->change)))
    return TO_BE_ASKED_AGAIN;
  return !until || until == out->change || until == out->record ? LEFT_OUT : TAKEN_AS_LAST;
}

static const byte *line_begin(const byte *begin, const byte *at)
{
#if defined(__APPLE__)
  while (at > begin && at[-1] != '\n')
    at--;
  return at;
#else
  const byte *feed = memrchr(begin, '\n', (size_t)(at - begin));
  return feed ? feed + 1 : begin;
#endif
}

/* ---- What scan.py calls ---- */

int64_t nlp_bench_scan_interface(void) { return INTERFACE; }

/* Finish a plan whose `table` is filled in. */
void nlp_bench_scan_prepare(struct plan *plan)
{
  for (int place = 0; place < 3; place++) {
    memset(plan->low[place], 0, 16);
    memset(plan->high[place], 0, 16);
    for (int character = 0; character < 256; character++) {
      plan->low[place][character & 15] |= plan->table[place][character];
      plan->high[place][character >> 4] |= plan->table[place][character];
    }
  }
  for (int place = 0; place < MAX_PIECES; place++)
    plan->expected[place] = plan->num_keys;
  if (!plain_locale)
    plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Scan data[out->at:end), which begins with a line; returns 1 when an array is full and it wants to be called again. */
int64_t nlp_bench_scan(struct plan *plan, const byte *data, int64_t end_place, int64_t is_simple, struct output *out)
{
  finder find = is_simple ? find_plain : best_finder();
  const byte *end = data + end_place, *at = data + out->at, *found;
  while (out->num_rows < out->max_rows && out->num_lines < out->max_lines) {
    int64_t num_line_ends = out->num_line_ends;
    found = find(plan, at, end, &out->num_line_ends);
    if (!found) {
      out->at = end_place;
      return 0;
    }
    const byte *line_end = memchr(found, '\n', (size_t)(end - found)), *begin = line_begin(at, found);
    int64_t row = out->num_rows;
    int is_last = 0;
    double values[MAX_COLUMNS];
    if (line_end && read_row(plan, begin, line_end, values, &out->row_label[row])) {
      put_row(out, values, plan->num_columns);
      out->row_begin[row] = begin - data;
      out->row_number[row] = out->num_line_ends;
      out->num_rows++;
    } else {
      uint64_t shape = shape_of(find, begin, line_end ? line_end : end);
      enum fate fate = fate_of(out, shape);
      if (fate == TO_BE_ASKED_AGAIN) {
        out->num_line_ends = num_line_ends;
        return 1;
      }
      is_last = fate == TAKEN_AS_LAST;
      if (fate != LEFT_OUT) {
        out->line_begin[out->num_lines] = begin - data;
        out->line_end[out->num_lines] = (line_end ? line_end : end) - data;
        out->line_shape[out->num_lines] = shape;
        out->line_number[out->num_lines++] = out->num_line_ends;
      } else {
        plan->num_checked--; /* a place where a word stood */
      }
    }
    at = line_end ? line_end + 1 : end;
    out->num_line_ends += line_end != NULL;
    out->at = at - data;
    if (is_last)
      break;
  }
  return 1;
}
