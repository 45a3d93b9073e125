import { describe, expect, it } from "vitest";
import { hideSecrets } from "./secret-text.ts";

const hex32 = "0123456789abcdef0123456789abcdef";
const jwt = `eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.${"s".repeat(43)}`;
const pemBody = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC";
// In two parts, so that no scanner of repositories takes them for real ones.
const of = (...parts: string[]): string => parts.join("");

describe("hideSecrets", () => {
  it.each([
    [`tenant_access_token=t-g1044qeGEDXTB6NDJOGV4JQCYDGHRBARFTGT1234`, "tenant_access_token=***"],
    [`refused t-caecc734c2e3328a62489fe0648c4b98779515d3 (99991663)`, "refused *** (99991663)"],
    [`u-Q7JWnaIM_kRChuLfreHmpArjOEayt.5XUBJcZr.V0Gst expired`, "*** expired"],
    [`app token a-c7042fd3ab1e4c2f90aa12bc34de56f7`, "app token ***"],
    [`{"app_id":"cli_a1","app_secret":"s3cret"}`, `{"app_id":"cli_a1","app_secret":"***"}`],
    [`{\\"app_secret\\": \\"dskLLdkasdjlasdKK\\"}`, `{\\"app_secret\\": \\"***\\"}`],
    [`GET /oauth?client_secret=hunter2&code=1`, "GET /oauth?client_secret=***&code=1"],
    [`GET /x?access_token=abcdef HTTP/1.1`, "GET /x?access_token=*** HTTP/1.1"],
    [`https://h/x?token=abc&page=2`, "https://h/x?token=***&page=2"],
    [`password=hunter2; user=me`, "password=***; user=me"],
    [`password: hunter2`, "password: ***"],
    [`token: ${hex32}`, "token: ***"],
    [`"refreshToken": "abcdefgh"`, `"refreshToken": "***"`],
    [`login --password hunter --user me`, "login --password *** --user me"],
    [`Authorization: Bearer abcdef123456`, "Authorization: Bearer ***"],
    [`"authorization": "Basic dXNlcjpwdw=="`, `"authorization": "Basic ***"`],
    [`authorization=opaque`, "authorization=***"],
    [`header Bearer abcdef.123456`, "header Bearer ***"],
    [`Cookie: session=1; other=2\nHost: h`, "Cookie: ***\nHost: h"],
    [`signing_key=${hex32}`, "signing_key=***"],
    [`key: ${hex32}${hex32}`, "key: ***"],
    [`no JWT ${jwt} here`, "no JWT *** here"],
    [`redis://user:s3cret@host:6379 failed`, "redis://***@host:6379 failed"],
    [`https://token@github.com/x`, "https://***@github.com/x"],
    [`key sk-ant-api03-abcdefghijkl refused`, "key *** refused"],
    [of("sk", "_live_", "4eC39HqLyjWDarjtT1zdp7dc"), "***"],
    [of("whsec", "_abcdefgh12345678"), "***"],
    [of("AKIA", "IOSFODNN7EXAMPLE is not valid"), "*** is not valid"],
    [
      `aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY`,
      "aws_secret_access_key = ***",
    ],
    [of("AIza", "SyA-1234567890abcdefghijklmnopqrstu"), "***"],
    [of("ya29", ".a0AfH6SMBx-abc"), "***"],
    [of("LTAI", "5tABCDEFGHIJKLMNOP"), "***"],
    [
      `DefaultEndpointsProtocol=https;AccountKey=abc/def+ghi==;x=y`,
      "DefaultEndpointsProtocol=https;AccountKey=***;x=y",
    ],
    [
      `https://b.blob.core.windows.net/c?sv=1&sig=abcdefghijklmnop%3D`,
      "https://b.blob.core.windows.net/c?sv=1&sig=***",
    ],
    [of("gh", "p_abcdefghijklmnopqrstuvwxyz0123456789"), "***"],
    [of("github", "_pat_11ABCDEFG0abcdefghijkl_mnop"), "***"],
    [of("glpat", "-abcdefghijklmnopqrst"), "***"],
    [of("xox", "b-123456789012-abcdefghijkl"), "***"],
    [of("npm", "_abcdefghijklmnopqrstuvwxyz0123456789"), "***"],
    [
      `a\n-----BEGIN RSA PRIVATE KEY-----\n${pemBody}\n-----END RSA PRIVATE KEY-----\nb`,
      "a\n***\nb",
    ],
    [`-----BEGIN PRIVATE KEY-----\\n${pemBody}`, "***"],
  ])("turns %j into %j", (text, expected) => {
    expect(hideSecrets(text, "***")).toBe(expected);
  });

  it.each([
    "om_dc13264520392913993dd051dba21dcf in oc_5ad11d72b830411d72b836c20 of ou_7d8a6e6df7621556ce0d21922b676706ccs",
    "trace_id=4bf92f3577b34da6a3ce929d0e0e4736 span 00f067aa0ba902b7",
    "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    `redis:7.2-bookworm@sha256:${hex32}${hex32}`,
    `sha256:${hex32}${hex32}`,
    "request id 2026112220450101900B0F1AC2D4E8A7B9, log_id 20261122204501",
    "claude-sonnet-4-5-20250929 answered for $0.0123 (¥12,345.67)",
    "max_tokens: 4096, 12 tokens used, inputTokens=500",
    "unexpected token: expected a comma",
    "invalid token } in JSON at position 5",
    "the password is wrong; tokens are secret",
    "Bearer certificates and basic understanding",
    "cli_a1b2c3d4e5f6.oc_5ad11d72b830411d72b836c20.main-17",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "GET https://open.feishu.cn/open-apis/im/v1/messages/om_1?page=2 403",
    "a-team of u-boats, t-shirts and risk-assessments: task-force-1",
    "{larkline}:token:cli_a1b2c3d4 and {larkline:3}:h:cli_x.oc_1.main",
    "uuid 123e4567-e89b-12d3-a456-426614174000",
    "mail ann@example.com, see https://example.com/a and write to bob@example.com",
    "/usr/lib/node_modules/@larkline/protocol/src/secret-text.ts:12:34",
  ])("leaves %j as it is", (text) => {
    expect(hideSecrets(text, "***")).toBe(text);
  });

  it("takes time in proportion to the length, whatever the text", () => {
    const parts = [
      "a",
      "-",
      "://",
      "://a",
      "eyJ",
      "-eyJaaaaa",
      "t-",
      "t-aaaa.",
      "sk-",
      "bearer ",
      "basic\t",
      "token",
      "token:",
      "password: x",
      "secret_",
      "--a",
      "--token",
      "cookie:",
      "authorization: ",
      "-----BEGIN PRIVATE KEY-----",
      "-----BEGIN ",
      "AKIA",
      "key=0",
      "&sig=",
      "\\\"'",
      " ",
      "0123456789abcdef",
    ];
    const started = process.threadCpuUsage();
    for (const part of parts) hideSecrets(part.repeat(Math.ceil(1_048_576 / part.length)), "***");
    // A few ms each; a quadratic one takes minutes.
    expect(process.threadCpuUsage(started).user / 1_000).toBeLessThan(30_000);
  });
});
