import { traceIdOf, traceparentOf } from "@larkline/protocol/trace";
import { expect, it, vi } from "vitest";
import { visibleAnswers, waitForAnswer } from "../system/answer.ts";
import { write, type Written } from "../system/answers.ts";
import { untilAsked } from "../system/approvals.ts";
import { operators, system } from "./console-deployment.ts";

const patience = { timeout: 60_000, interval: 200 };

async function page(path: string, query: Record<string, string> = {}): Promise<string> {
  const search = new URLSearchParams(query).toString();
  return await (await fetch(`${operators.url}${path}?${search}`)).text();
}

function textOf(html: string): string {
  const [, main = ""] = /<main[^>]*>([\s\S]*)<\/main>/.exec(html) ?? [];
  return main.replaceAll(/<[^>]*>/g, " ").replaceAll(/\s+/g, " ");
}

const traceOf = ({ messageId }: Written): string =>
  traceIdOf(traceparentOf({ app: system.appId, id: messageId }));

/** The message of the bot that shows the answer so far. */
async function untilCard(written: Written): Promise<string> {
  return await vi.waitFor(() => {
    const [card] = visibleAnswers(system.feishu, written).flatMap(({ messages }) => messages);
    return card?.messageId ?? expect.fail("the bot shows nothing yet");
  }, patience);
}

it("finds a run by names, by every id, by the bot's card, by its footer and by a link", async () => {
  const cara = { ...system.person("Cara Lopez"), mention: true };
  const { chatId } = system.feishu.addChat({
    type: "group",
    name: "Harbour crew",
    members: [cara.openId],
  });
  const written = await write(
    system,
    { ...cara, chatId },
    'please\ncall note_idempotent {"key":"harbour"}',
  );
  const { messages } = await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 60_000 });
  const card = messages.at(-1);
  const trace = traceOf(written);
  const shown = JSON.stringify(card?.card?.json);
  const [, short = "", link = ""] = /\[trace ([0-9a-f]{8})\]\((https:[^)]+)\)/.exec(shown) ?? [];
  expect([short, link]).toEqual([trace.slice(0, 8), `https://console.example.com/why?q=${trace}`]);

  const session = `${system.appId}.${chatId}`;
  const ids = [
    written.messageId,
    card?.messageId ?? "",
    chatId,
    cara.openId,
    session,
    `${session}-1`,
    trace,
  ];
  const pasted = [
    short,
    `trace ${short}`,
    link,
    `[trace ${short}](${link})`,
    `"turnId":"${session}-1"`,
  ];
  pasted.push(
    `${operators.url}/sessions/${session}`,
    `${operators.url}/runs?person=${cara.openId}`,
  );
  // Names, and the card, are written a moment after the answer.
  for (const query of ["cara lop", "HARBOUR", ...ids, ...pasted]) {
    await vi.waitFor(async () => {
      const row = textOf(await page("/runs", { q: query }));
      expect([query, row]).toEqual([
        query,
        expect.stringMatching(/Answered Cara Lopez Harbour crew default\b.*note_idempotent/),
      ]);
      expect([query, textOf(await page("/why", { q: query }))]).toEqual([
        query,
        expect.stringMatching(/Answered after .* Cara Lopez/),
      ]);
      const [sessions = ""] = textOf(await page("/sessions", { search: query })).split(
        "Doing something",
      );
      expect([query, sessions]).toEqual([
        query,
        expect.stringContaining(query === session ? "idle" : "Harbour crew"),
      ]);
    }, patience);
  }
  for (const word of ["note_idempotent", "answered", "DEFAULT"]) {
    expect([word, textOf(await page("/runs", { q: word }))]).toEqual([
      word,
      expect.stringContaining("Harbour crew"),
    ]);
  }
  expect(textOf(await page("/runs", { q: "tokens" }))).toContain("No run fits.");
});

it("finds a message by the card that its answer is written to, and by the card that asks about it", async () => {
  const drew = system.person("Drew");
  const written = await write(system, drew, 'call hold_pure {"key":"card"}');
  const card = await untilCard(written);
  await vi.waitFor(async () => {
    expect(textOf(await page("/why", { q: card }))).toMatch(
      /The tool hold_pure has been running .* Drew/,
    );
  }, patience);
  const found = await page("/runs", { q: card });
  expect(textOf(found)).toContain("No run fits.");
  expect(found).toContain(`href="/why?q=${card}"`);
  await system.release("card");
  await vi.waitFor(async () => {
    expect(textOf(await page("/runs", { q: card }))).toMatch(/Answered Drew Drew/);
  }, patience);

  const eli = system.person("Eli");
  await write(system, eli, 'call ask_pure {"key":"card"}');
  const [question] = await untilAsked(system, eli.chatId);
  await vi.waitFor(async () => {
    const why = textOf(await page("/why", { q: question?.message.messageId ?? "" }));
    // Names are written while people are waited for, and occur in sentences, too.
    expect(why).toMatch(/The call ask_pure has waited for the approval of Eli /);
  }, patience);
});
