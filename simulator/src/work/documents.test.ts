import { expect, onTestFinished, test } from "vitest";
import { startFeishuSimulator } from "../index.ts";
import { connectTestClient } from "../open-api.fixture.ts";

const app = { appId: "cli_0123456789abcdef", appSecret: "s" };

test("a document is read as it was in an earlier revision by those who may edit it", async () => {
  const simulator = await startFeishuSimulator({ apps: [app], limits: "off" });
  onTestFinished(async () => await simulator.close());
  const { docs } = simulator.work;
  const { documentId, revision, blocks } = docs.addDocument({
    owner: app.appId,
    title: "Plan",
    markdown: "one",
  });
  const block = blocks.get(documentId)?.children?.[0];
  const { call } = await connectTestClient(simulator.url, app);
  const path = `/open-apis/docx/v1/documents/${documentId}/blocks`;
  const textAt = async (wanted: number): Promise<string> => {
    const { code, data } = await call("GET", `${path}?document_revision_id=${wanted}`);
    return code === 0 ? (/"content":"(one|two)"/.exec(JSON.stringify(data))?.[1] ?? "") : `${code}`;
  };
  const elements = [{ text_run: { content: "two" } }];
  const changed = await call("PATCH", `${path}/batch_update?document_revision_id=${revision}`, {
    requests: [{ block_id: block, update_text_elements: { elements } }],
  });
  expect(changed.data["document_revision_id"]).toBe(revision + 1);
  expect([await textAt(-1), await textAt(revision + 1), await textAt(revision)]).toEqual([
    "two",
    "two",
    "one",
  ]);
  expect(await textAt(revision + 2)).toBe("1770001");
  simulator.work.share(documentId, app.appId, "view");
  expect([await textAt(-1), await textAt(revision)]).toEqual(["two", "1770032"]);
});
