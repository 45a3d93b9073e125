import type { AuditRecord } from "@larkline/store";
import { beforeAll, describe, expect, it, vi } from "vitest";
import { runApp } from "../system/app-process.ts";
import type { Written } from "../system/answers.ts";
import { decide, openQuestions, untilRetired, type AskedCard } from "../system/approvals.ts";
import { submit, theQuestion } from "../system/asking.ts";
import { answerTo, groupOf, lastRequest, send, type Writer } from "../system/sending.ts";
import { lead, system } from "./approvals-deployment.ts";

/** A call that was in the middle of its work when its runner died. */
interface Broken {
  key: string;
  requester: Writer;
  stranger: Writer;
  written: Written;
  card: AskedCard;
}

let broken: Record<"retried" | "done" | "aborted", Broken>;

async function runsOf({ key }: { key: string }): Promise<string[]> {
  return (await system.recorded()).filter((line) => line.endsWith(` ${key}`));
}

async function hold(key: string): Promise<Omit<Broken, "card">> {
  const [requester, stranger] = groupOf(system, ["Ann", "Dan"]).people;
  if (requester === undefined || stranger === undefined) throw new Error("nobody is there");
  const text = `charge\ncall hold_once ${JSON.stringify({ key })}`;
  const written = await send(system, requester, { text, mention: true });
  await vi.waitUntil(async () => (await runsOf({ key })).length === 1, {
    timeout: 60_000,
    interval: 10,
  });
  return { key, requester, stranger, written };
}

/** Calls whose runner is killed at once, and what people are asked about them. */
async function breakCalls(): Promise<typeof broken> {
  const doomed = await system.startProcess("tool-runner");
  for (const runner of system.runners) await runner.stop();
  const [retried, done, aborted] = [
    await hold("retried"),
    await hold("done"),
    await hold("aborted"),
  ];
  await doomed.kill();
  system.runners.splice(0, 1, await system.start("tool-runner"));
  const asked = async (held: Omit<Broken, "card">): Promise<Broken> => ({
    ...held,
    card: await vi.waitUntil(
      async () => await theQuestion(system, held.written.chatId).catch(() => undefined),
      {
        timeout: 60_000,
      },
    ),
  });
  return { retried: await asked(retried), done: await asked(done), aborted: await asked(aborted) };
}

describe("a `once` call whose runner was killed in the middle of it", () => {
  beforeAll(async () => void (broken = await breakCalls()));

  it("is not run again: a card asks what has become of it, with three ways to answer", async () => {
    for (const { key, card } of Object.values(broken)) {
      expect(card.title).toBe("Did hold_once take effect?");
      expect(card.values.map(({ action }) => action).toSorted()).toEqual([
        "abort",
        "done",
        "retry",
      ]);
      expect(await runsOf({ key })).toHaveLength(1);
    }
  });

  it("is for the requester and the approvers only", async () => {
    const { stranger, card, written } = broken.retried;
    for (const action of ["retry", "abort"]) {
      const { toast, cardChanged } = await decide(system, card, {
        openId: stranger.openId,
        wanted: { action },
      });
      expect(toast).toMatchObject({
        type: "info",
        content: expect.stringMatching(/^Only these may decide: /),
      });
      expect(cardChanged).toBe(false);
    }
    const form = { note: "it is done, believe me" };
    const { toast } = await submit(system, card, {
      openId: stranger.openId,
      button: "done_form_submit",
      form,
    });
    expect(toast?.content).toMatch(/^Only these may decide: /);
    expect(openQuestions(system, written.chatId)).toHaveLength(1);
    expect(await runsOf(broken.retried)).toHaveLength(1);
  });

  it("is run a second time when the requester says so, and what that brings is its result", async () => {
    const { requester, card, written, key } = broken.retried;
    const { toast } = await decide(system, card, {
      openId: requester.openId,
      wanted: { action: "retry" },
    });
    expect(toast).toMatchObject({ type: "success", content: "It is run again" });
    await vi.waitUntil(async () => (await runsOf({ key })).length === 2, {
      timeout: 60_000,
      interval: 10,
    });
    await system.release(key);
    expect(await answerTo(system, written)).toBe("[Ann: charge] ok:released");
    const cards = await untilRetired(system, written.chatId);
    expect(cards.map(({ title }) => title)).toEqual(["hold_once run again"]);
    const again = await decide(system, card, {
      openId: requester.openId,
      wanted: { action: "retry" },
    });
    expect(again.toast?.content).toBe("no pending approval");
    expect(await runsOf({ key })).toHaveLength(2);
  });

  it("is in the audit log with two attempts, of which the second was allowed by the requester's word", async () => {
    const program = { file: "apps/cli/src/main.ts", args: ["audit", "--file", "no-such.env"] };
    const { code, output } = await runApp(program, system.env, 60_000);
    expect(code).toBe(0);
    const records = output
      .split("\n")
      .flatMap((line) => (line === "" ? [] : [JSON.parse(line) as AuditRecord])); // by contract
    const { requester, written } = broken.retried;
    const here = records.filter(
      ({ chatId, session }) => chatId === written.chatId || session?.endsWith(written.chatId),
    );
    const started = here.flatMap(({ kind, callId }) => (kind === "call_started" ? [callId] : []));
    expect(started).toEqual([started[0], `${started[0]}.2`]);
    const decided = here.filter(({ kind }) => kind === "approval_decided");
    expect(decided).toMatchObject([{ result: "retry", userId: requester.openId }]);
  });

  it("is marked as done by an approver on a copy of their own, and the model reads the note", async () => {
    const { written, key } = broken.done;
    const copyOf = () =>
      openQuestions(system, lead.chatId).find(({ message }) =>
        JSON.stringify(message.card?.json).includes(`\\"${key}\\"`),
      );
    const copy = await vi.waitUntil(copyOf, { timeout: 60_000, interval: 10 });
    const form = { note: "Order 4711 was charged." };
    const { toast } = await submit(system, copy, {
      openId: lead.openId,
      button: "done_form_submit",
      form,
    });
    expect(toast).toMatchObject({ type: "success", content: "Marked as done" });
    expect(await answerTo(system, written)).toContain(
      "ok:A person has checked this call: it took effect.",
    );
    const results = lastRequest(system).messages.flatMap((message) => message.results);
    expect(results).toMatchObject([
      { content: expect.stringContaining("Note: Order 4711 was charged."), isError: false },
    ]);
    expect((await untilRetired(system, written.chatId)).map(({ title }) => title)).toEqual([
      "hold_once done",
    ]);
    expect(await runsOf({ key })).toHaveLength(1);
  });

  it("is given up, and the model gets an error that says so", async () => {
    const { requester, card, written, key } = broken.aborted;
    const { toast } = await decide(system, card, {
      openId: requester.openId,
      wanted: { action: "abort" },
    });
    expect(toast).toMatchObject({ type: "info", content: "Given up" });
    expect(await answerTo(system, written)).toContain(
      "failed:The outcome of this call is unknown, and a person decided not to try it again.",
    );
    expect((await untilRetired(system, written.chatId)).map(({ title }) => title)).toEqual([
      "hold_once given up",
    ]);
    expect(await runsOf({ key })).toHaveLength(1);
  });

  it("leaves no button anywhere once it is answered", async () => {
    const titles = (await untilRetired(system, lead.chatId)).map(({ title }) => title);
    expect(titles.filter((title) => title.startsWith("hold_once ")).toSorted()).toEqual([
      "hold_once done",
      "hold_once given up",
      "hold_once run again",
    ]);
  });
});
