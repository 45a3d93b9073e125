/*
 * The one list of shapes by which secrets are recognised in free text: what logs, traces, cards and pages show of
 * errors, commands and arguments goes through it. Every pattern is linear: a match begins where a run of characters
 * begins, and no part of it can be read in two ways.
 */

/** Names whose value is a secret, at the end of longer ones too, such as `tenant_access_token`. */
const names =
  "secret(?:[_-]?(?:access[_-]?)?key)?|(?:api|access|account|private|signing|encrypt|encoding)[_-]?key|token|" +
  "passw(?:or)?d|passphrase|pwd|credentials?|ticket|shared_?access_?signature|secret[_-]?id";

/** Ids of Feishu, which stand behind such names in keys and messages, are none. */
const notAnId = "(?!(?:cli|oc|om|on|op|ou)_)";
const quotes = `["'\\\\]{0,4}`;
const value = `[^\\s"'&;,<>()\\[\\]{}\\\\]+`;

/** What is hidden, and what of a match stays: `$1`. */
const shapes: readonly (readonly [RegExp, string])[] = [
  // PEM, also cut off and with written line breaks.
  [
    /-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----[^]*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|$)/g,
    "",
  ],
  // User and password of a URL.
  [/(:\/\/)[^/\s@"'<>]{1,2000}(?=@)/g, "$1"],
  // Headers.
  [
    /\b((?:proxy-)?authorization["'\\]{0,4}\s{0,3}[:=]\s{0,3}["'\\]{0,4}(?:[a-z]{1,20} )?)[^\s"',;\\]+/gi,
    "$1",
  ],
  [/\b((?:set-)?cookie["'\\]{0,4}\s{0,3}:\s{0,3}["'\\]{0,4})[^\r\n"'\\]+/gi, "$1"],
  // A word of prose has neither a digit nor a sign in it.
  [/\b((?:bearer|basic)\s{1,3})(?=[a-z~+/-]*[\d._=])[\w.~+/=-]{8,}/gi, "$1"],
  // `client_secret=…`, `"app_secret": "…"`, `--password …`
  [
    new RegExp(
      `((?:${names})(?:["'\\\\]{1,4}\\s{0,3}[:=]|\\s{0,3}=)\\s{0,3}${quotes})${notAnId}${value}`,
      "gi",
    ),
    "$1",
  ],
  [new RegExp(`(--[a-z-]{0,30}(?:${names})\\s{1,3}${quotes})${value}`, "gi"), "$1"],
  // `password: …` may be prose: what follows has a digit in it, or is long.
  [
    new RegExp(
      `((?:${names}):\\s{0,3})${notAnId}(?=[^\\s\\d"'&;,]{0,40}\\d|[\\w+/.-]{20})${value}`,
      "gi",
    ),
    "$1",
  ],
  // Long hex behind a name that may mean something else.
  [
    /\b((?:key|mac|hmac|sig|signature)["'\\]{0,4}\s{0,3}[:=]\s{0,3}["'\\]{0,4})[\da-f]{32,}(?![\w-])/gi,
    "$1",
  ],
  // Azure: signed addresses.
  [
    /([?&;](?:sig|signature|x-amz-signature|x-amz-security-token|x-goog-signature)=)[\w%+/=.-]{16,}/gi,
    "$1",
  ],
  // JSON Web Tokens.
  [/(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*){0,3}/g, ""],
  // Feishu: tokens of tenants, users and apps.
  [/(?<![\w.-])[atu]-(?=[a-z_]*[\dA-Z.])[\w.]{20,}(?:-[\w.]+){0,3}/g, ""],
  // OpenAI, Anthropic, DeepSeek; Stripe.
  [/(?<![\w-])sk-[\w-]{12,}/g, ""],
  [/(?<![\w-])(?:sk|rk|pk)_(?:live|test)_\w{8,}/g, ""],
  [/(?<![\w-])whsec_[\w+/=]{8,}/g, ""],
  // AWS, Google, Alibaba Cloud, Tencent Cloud.
  [/(?<![\w-])(?:AKIA|ASIA|ABIA|ACCA)[A-Z\d]{16}(?!\w)/g, ""],
  [/(?<![\w-])AIza[\w-]{30,}/g, ""],
  [/(?<![\w-])ya29\.[\w-]{10,}/g, ""],
  [/(?<![\w-])GOCSPX-[\w-]{10,}/g, ""],
  [/(?<![\w-])(?:LTAI[A-Za-z\d]{12,30}|AKID[A-Za-z\d]{13,40})(?!\w)/g, ""],
  // GitHub, GitLab, Slack, npm, Hugging Face.
  [/(?<![\w-])(?:gh[opsur]_\w{16,}|github_pat_\w{20,})/g, ""],
  [/(?<![\w-])glpat-[\w-]{10,}/g, ""],
  [/(?<![\w-])x(?:ox[abeoprs]|app)-[\w-]{8,}/g, ""],
  [/(?<![\w-])(?:npm|hf)_[A-Za-z\d]{20,}/g, ""],
];

/** Text with everything replaced by `mark` that looks like a secret. Linear in the length of the text. */
export function hideSecrets(text: string, mark: string): string {
  let shown = text;
  for (const [shape, kept] of shapes) {
    shown = shown.replaceAll(shape, (_match: string, first: unknown) =>
      kept === "" || typeof first !== "string" ? mark : `${first}${mark}`,
    );
  }
  return shown;
}
