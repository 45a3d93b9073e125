import { afterEach, describe, expect, it } from "vitest";
import {
  mostOfStorm,
  startWorld,
  testApp,
  type FeishuWorld,
  type WorldOptions,
} from "../feishu.fixture.ts";

const { appId: app } = testApp;
const eventType = "drive.notice.comment_add_v1";
const worlds: FeishuWorld[] = [];

afterEach(async () => {
  await Promise.all(worlds.splice(0).map(async (started) => await started.close()));
});

/** A document that Ann and the bot may see, and what people write beside it. */
async function commented(options: WorldOptions = {}) {
  const settings = { doors: { comments: true }, ...options.settings };
  const here = await startWorld({ ...options, settings });
  worlds.push(here);
  const { work } = here.platform;
  const { documentId } = work.docs.addDocument({
    owner: here.ann,
    title: "Plan",
    markdown: "Ship.",
  });
  work.share(documentId, app, "view");
  const { openId: self } = await here.api.botInfo();
  const write = (text: string, more: { by?: string; mentions?: string[]; quote?: string } = {}) =>
    work.docs.comment({
      documentId,
      by: here.ann,
      text,
      mentions: [self],
      quote: "Ship.",
      ...more,
    });
  const send = async (event: Record<string, unknown>, createdAt = Date.now()) =>
    (await here.platform.sendEvent({ appId: app, eventType, event, createdAt })).outcome;
  const sessionOf = (commentId: string) => `${app}.document-${documentId}-${commentId}`;
  return { here, documentId, self, write, send, sessionOf };
}

describe("a comment that mentions the bot", () => {
  it("is one message of its author, however often its event comes, with the passage as data", async () => {
    const { here, documentId, write, send, sessionOf } = await commented();
    const { comment, event } = write("When, exactly?");
    expect([await send(event), await send(event)]).toEqual(["acknowledged", "acknowledged"]);
    const session = sessionOf(comment.commentId);
    expect(await here.waiting(session)).toBe(1);
    const head = await here.head(session);
    expect(head).toMatchObject({
      sender: { id: here.ann },
      chatType: "group",
      foreign: true,
      needs: ["reply-object"],
      reply: {
        chatId: here.ann,
        object: { kind: "comment", fileToken: documentId, commentId: comment.commentId },
      },
    });
    const texts = head?.parts.map((part) => (part.type === "text" ? part.text : ""));
    expect(texts?.[0]).toContain("```\nThe passage: Ship.\n```");
    expect(texts?.[1]).toBe("When, exactly?");
  });

  it("starts nothing where the door is shut", async () => {
    const { here, write, send, sessionOf } = await commented({ settings: { doors: {} } });
    const { comment, event } = write("When?");
    await send(event);
    expect(await here.waiting(sessionOf(comment.commentId))).toBe(0);
  });

  it("starts nothing where it mentions another one, is the bot's own, or names another author", async () => {
    const { here, self, write, send, sessionOf } = await commented();
    const other = write("Bob?", { mentions: [here.bob] });
    const own = write("Me?", { by: self });
    const forged = write("As Ann?", { by: here.bob });
    const meta = { ...Object(forged.event["notice_meta"]), from_user_id: { open_id: here.ann } };
    for (const event of [other.event, own.event, { ...forged.event, notice_meta: meta }]) {
      expect(await send(event)).toBe("acknowledged");
    }
    for (const { comment } of [other, own, forged]) {
      expect(await here.waiting(sessionOf(comment.commentId))).toBe(0);
    }
  });

  it("starts nothing in a document that the bot may not see", async () => {
    const { here, documentId, write, send, sessionOf } = await commented();
    const { comment, event } = write("When?");
    here.platform.work.unshare(documentId, app);
    expect(await send(event)).toBe("acknowledged");
    expect(await here.waiting(sessionOf(comment.commentId))).toBe(0);
  });

  it("starts nothing hours after it was written, and nothing of people whom the bot does not serve", async () => {
    const { write, send, here, sessionOf } = await commented();
    const { comment, event } = write("When?");
    expect(await send(event, Date.now() - 7 * 3_600_000)).toBe("acknowledged");
    expect(await here.waiting(sessionOf(comment.commentId))).toBe(0);
    const other = await commented({ settings: { bots: { default: { tenants: ["other"] } } } });
    const foreign = other.write("When?");
    expect(await other.send(foreign.event)).toBe("acknowledged");
    expect(await other.here.waiting(other.sessionOf(foreign.comment.commentId))).toBe(0);
  });

  it("is one message each, in the order in which the events come", async () => {
    const { here, self, documentId, write, send, sessionOf } = await commented();
    const first = write("When?");
    const { commentId } = first.comment;
    const about = { documentId, by: here.ann, mentions: [self], commentId };
    const second = here.platform.work.docs.comment({ ...about, text: "And where?" });
    for (const { event } of [second, first, second]) await send(event);
    expect(await here.waiting(sessionOf(commentId))).toBe(2);
    const head = await here.head(sessionOf(commentId));
    expect(head?.parts.at(-1)).toEqual({ type: "text", text: "And where?" });
  });

  it("counts once where it cannot be read at first, and its event comes again", async () => {
    const { here, self, send, documentId } = await commented({ retryDelaysMs: [] });
    const events = Array.from({ length: 20 }, (_, number) => {
      const written = { by: here.ann, text: `Question ${number}`, mentions: [self] };
      return here.platform.work.docs.comment({ documentId, ...written }).event;
    });
    const sendAll = async () => [
      ...new Set(await Promise.all(events.map(async (event) => await send(event)))),
    ];
    const repaired = here.platform.faults.add({
      match: { method: "GET", path: /\/comments\// },
      action: { kind: "respond", status: 503 },
    });
    expect(await sendAll()).toEqual(["exhausted"]);
    repaired();
    expect(await sendAll()).toEqual(["acknowledged"]);
    expect(await here.waiting(`${app}.document-${documentId}-whole`)).toBe(20);
  });

  it("is one of twenty a minute that a person may have, in a storm of a thousand", async () => {
    const { here, self, send, documentId } = await commented();
    const mentions = [self];
    const events = Array.from({ length: 1_000 }, (_, number) => {
      const written = { documentId, by: here.ann, text: `Question ${number}`, mentions };
      return here.platform.work.docs.comment(written).event;
    });
    const most = mostOfStorm();
    const outcomes = await Promise.all(events.map(async (event) => await send(event)));
    expect(new Set(outcomes)).toEqual(new Set(["acknowledged"]));
    const allowed = most();
    const taken = await here.waiting(`${app}.document-${documentId}-whole`);
    expect(taken).toBeGreaterThanOrEqual(20);
    expect(taken).toBeLessThanOrEqual(allowed);
  });
});
