/** Where an app lives: one of the two clouds, or any base URL (a simulator, a proxy). */
export type FeishuDomain = "feishu" | "lark" | (string & {});

const clouds: Record<string, string> = {
  feishu: "https://open.feishu.cn",
  lark: "https://open.larksuite.com",
};

/** The base URL without a trailing slash. Throws when it is neither a known name nor an http(s) URL. */
export function baseUrlOf(domain: FeishuDomain): string {
  const known = clouds[domain];
  if (known !== undefined) return known;
  if (!URL.canParse(domain)) throw new Error(`FEISHU_DOMAIN must be feishu, lark or a base URL, got "${domain}"`);
  const url = new URL(domain);
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw new Error(`FEISHU_DOMAIN must be an http or https URL, got "${url.protocol}"`);
  }
  return `${url.origin}${url.pathname}`.replace(/\/+$/, "");
}
