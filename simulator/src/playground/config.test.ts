import { expect, test } from "vitest";
import { loadConfig } from "./playground.ts";

test("an empty environment is enough", () => {
  expect(loadConfig({})).toMatchObject({
    ok: true,
    value: { host: "127.0.0.1", port: 8004, appSecret: "playground" },
  });
});

test("every problem is named, and no secret is shown", () => {
  const loaded = loadConfig({
    PORT: "x",
    FEISHU_APP_ID: "cli_short",
    FEISHU_WEBHOOK_URL: "ftp://x",
    FEISHU_APP_SECRET: "hidden",
  });
  const error = loaded.ok ? "" : loaded.error;
  for (const name of ["PORT", "FEISHU_APP_ID", "FEISHU_WEBHOOK_URL"]) expect(error).toContain(name);
  expect(error).not.toContain("hidden");
});
