import { expect, it } from "vitest";
import { baseUrlOf } from "./rate-limiter.ts";

it.each([
  ["feishu", "https://open.feishu.cn"],
  ["lark", "https://open.larksuite.com"],
  ["http://127.0.0.1:9000/", "http://127.0.0.1:9000"],
  ["https://proxy.example/feishu//", "https://proxy.example/feishu"],
])("the domain %s is %s", (domain, url) => expect(baseUrlOf(domain)).toBe(url));

it.each(["", "open.feishu.cn", "ftp://x", "javascript:alert(1)"])(
  "the domain %j is refused",
  (domain) => {
    expect(() => baseUrlOf(domain)).toThrow(/FEISHU_DOMAIN/);
  },
);
