import type { ScriptedCall } from "@larkline/testkit";
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  ids,
  isForDocuments,
  languages,
  modelServer,
  openPage,
  playground,
  prompt,
  system,
  takePicture,
} from "./states-deployment.ts";

const patience = { timeout: 60_000 };

function call(name: string, given: object): ScriptedCall {
  return { name, arguments: JSON.stringify(given) };
}

describe.each(languages)("what people see of an answer (%s)", (language) => {
  const say = (zh: string, en: string): string => (language === "zh" ? zh : en);
  const words = {
    message: say("消息", "Message"),
    generating: say("生成中…", "Generating…"),
    approve: say("批准", "Approve"),
  };
  const name = say("王芳", "Ann Lee");
  let page: Page;
  let close: () => Promise<void>;

  beforeAll(async () => {
    const opened = await openPage(playground.url, language);
    page = opened.page;
    page.setDefaultTimeout(60_000); // a machine that is busy with other tests
    await page.setViewportSize({ width: 1280, height: 1_000 });
    close = async () => {
      expect(opened.errors).toEqual([]);
      await opened.close();
    };
    await page.locator(".chat:not([hidden])").waitFor();
  });
  afterAll(async () => await close?.());

  /** Opens a chat on the page. */
  async function openChat(chatId: string): Promise<Locator> {
    const chat = page.locator(`.chat[data-chat-id="${chatId}"]`);
    await chat.waitFor({ state: "attached" });
    await page.locator(".chat-entry").last().click(); // the newest chat is the last one
    await chat.waitFor();
    return chat;
  }

  /** A person with a chat of their own, which the page shows. */
  async function newChat(openId?: string): Promise<Locator> {
    const { simulator } = playground;
    const person = simulator.addUser({ name, ...(openId === undefined ? {} : { openId }) });
    return await openChat(
      simulator.addChat({ type: "p2p", name, members: [person.openId] }).chatId,
    );
  }

  async function write(chat: Locator, text: string): Promise<void> {
    const input = chat.getByRole("textbox", { name: words.message });
    await input.fill(text);
    await input.press("Enter");
    await chat.locator(".message:not(.from-bot)", { hasText: text }).last().waitFor();
  }

  const cardIn = (chat: Locator): Locator => chat.locator(".feishu-card").last();
  const titleOf = (card: Locator): Locator => card.locator(".panel-title").first();
  const askedIn = (chat: Locator): Locator => chat.locator(".message:not(.from-bot)").last();

  async function untilFinished(chat: Locator): Promise<void> {
    await cardIn(chat)
      .getByText(/\d 秒|\d s/)
      .last()
      .waitFor();
    await chat.getByText(words.generating).waitFor({ state: "detached" });
  }

  const picture = async (called: string, ...parts: Locator[]) =>
    await takePicture(page, { name: called, language, parts });

  it("a call that runs: its sentence, seconds and progress are on the title of the fold", async () => {
    const key = `export-${language}`;
    const text = say("导出上周的订单", "Export last week's orders");
    const week = say("上周", "last week");
    prompt(
      text,
      { text: say("好的，正在导出。", "On it."), calls: [call("export_orders", { week, key })] },
      { text: say("上周有 1,000 个订单。", "There were 1,000 orders.") },
    );
    const chat = await newChat();
    await write(chat, text);
    const title = say("导出上周的订单", "Export the orders of last week");
    const seconds = say("\\d+ 秒", "\\d+ s");
    await expect
      .poll(async () => await titleOf(cardIn(chat)).textContent(), patience)
      .toMatch(new RegExp(`${title} · ${seconds} · 42% · 420 / 1,000$`));
    await picture("card-running", cardIn(chat));
    await system.release(key);
    await untilFinished(chat);
    await expect
      .poll(async () => await titleOf(cardIn(chat)).textContent(), patience)
      .toMatch(new RegExp(`^${say("导出订单", "Export orders")}( ${seconds})?$`));
  });

  it("a call that has failed: seen without unfolding anything", async () => {
    const text = say("仓库里还有多少绿茶？", "How much green tea is in stock?");
    prompt(
      text,
      { calls: [call("query_stock", { article: say("绿茶", "green tea") })] },
      {
        text: say(
          "仓库系统没有响应，请稍后再试。",
          "The warehouse does not answer: please try later.",
        ),
      },
    );
    const chat = await newChat();
    await write(chat, text);
    await untilFinished(chat);
    expect(await titleOf(cardIn(chat)).textContent()).toBe(
      say("查询库存 ❌", "Look up the stock ❌"),
    );
    const panel = cardIn(chat).locator("details.panel").first();
    expect(await panel.getAttribute("class")).toContain("ink-red");
    expect(await panel.evaluate((one) => one.hasAttribute("open"))).toBe(false);
    await picture("card-failed-call", cardIn(chat));
  });

  it("an approval on the card of the answer, and the form for a reason behind its button", async () => {
    const text = say("提醒大家周五给花浇水", "Remind the team to water the plants on Friday");
    const note = say("周五给花浇水", "water the plants on Friday");
    prompt(
      text,
      {
        text: say("好的，我来记下。", "I will write it down."),
        calls: [call("add_note", { text: note })],
      },
      { text: say("好的，那就不记了。", "Then I leave it.") },
    );
    const chat = await newChat();
    await write(chat, text);
    const card = cardIn(chat);
    await card.getByRole("button", { name: words.approve, exact: true }).waitFor();
    expect(await chat.locator(".feishu-card").count()).toBe(1);
    expect(await card.textContent()).toContain(say(`记一条笔记：${note}`, `Add a note: ${note}`));
    const folded = card.locator("details.panel", { hasText: say("参数", "Arguments") });
    expect(await folded.evaluate((one) => one.hasAttribute("open"))).toBe(false);
    const tops = await card
      .locator(".column-set button")
      .evaluateAll((all) => all.map((one) => one.getBoundingClientRect().top));
    expect(new Set(tops).size, "the buttons are in one row").toBe(1);
    await picture("card-approval", askedIn(chat), card);
    await card.getByRole("button", { name: say("拒绝并说明理由…", "Reject and say why…") }).click();
    const reason = card.locator("form input");
    await reason.fill(say("周五放假", "Friday is a holiday"));
    await picture("card-reject", card);
    await card
      .getByRole("button", { name: say("附上理由并拒绝", "Reject with this reason") })
      .click();
    await untilFinished(chat);
    await expect.poll(async () => await card.locator("form").count(), patience).toBe(0);
    await titleOf(card).click();
    await expect
      .poll(async () => await card.textContent(), patience)
      .toContain(say("周五放假", "Friday is a holiday"));
  });

  it("two questions on one card, each with its own buttons", async () => {
    const text = say("记下两件事", "Write down two things");
    const notes = [say("周一备份", "back up on Monday"), say("周二值班", "be on call on Tuesday")];
    prompt(
      text,
      {
        text: say("我来记下这两件事。", "I will write both down."),
        calls: notes.map((note) => call("add_note", { text: note })),
      },
      { text: say("都记下了。", "Both are written down.") },
    );
    const chat = await newChat();
    await write(chat, text);
    const approve = cardIn(chat).getByRole("button", { name: words.approve, exact: true });
    await expect.poll(async () => await approve.count(), patience).toBe(2);
    await picture("card-two-questions", cardIn(chat));
    await approve.first().click();
    await expect.poll(async () => await approve.count(), patience).toBe(1);
    await approve.click();
    await untilFinished(chat);
    await expect.poll(async () => await approve.count(), patience).toBe(0);
  });

  it("an approval that another person decides has a card of its own", async () => {
    const { simulator } = playground;
    const manager =
      simulator.users.get(ids.manager) ??
      simulator.addUser({ name: "李莫 Mo", openId: ids.manager });
    const asker = simulator.addUser({ name });
    const members = [asker.openId, manager.openId];
    const chat = await openChat(
      simulator.addChat({ type: "group", name: say("发布群", "Releases"), members }).chatId,
    );
    const text = say("发布 shop 2.1", "Deploy shop 2.1");
    prompt(
      text,
      { calls: [call("deploy", { service: "shop", version: "2.1", replicas: 3 })] },
      { text: say("已经发布。", "It is deployed.") },
    );
    await write(chat, text);
    await cardIn(chat).getByRole("button", { name: words.approve, exact: true }).waitFor();
    await page.locator(".chat-entry", { hasText: manager.name }).click();
    const own = page.locator(".chat:not([hidden])", { hasText: manager.name });
    const approve = page.getByRole("button", { name: words.approve, exact: true });
    const card = own.locator(".feishu-card", { has: approve });
    expect(await card.locator(".card-head").textContent()).toBe(
      say("批准“发布服务”？", "Approve “Deploy a service”?"),
    );
    expect(await card.textContent()).toContain(
      say("把 shop 2.1 发布到生产环境", "Deploy shop 2.1 to production"),
    );
    expect(await card.textContent()).toContain(say(`发起人：${name}`, `Requested by: ${name}`));
    await picture("card-other-deciders", card);
    const asked = page.waitForEvent("dialog");
    const clicked = card.locator(approve).click();
    const twice = await asked;
    expect(twice.message()).toBe(
      say(
        "⚠️ 风险：高\n\n把 shop 2.1 发布到生产环境",
        "⚠️ Risk: high\n\nDeploy shop 2.1 to production",
      ),
    );
    await twice.accept();
    await clicked;
    await expect
      .poll(async () => await own.getByText(say("批准人", "Approved by")).count(), patience)
      .toBeGreaterThan(0);
    await card.waitFor({ state: "detached" });
    await page.locator(".chat-entry", { hasText: say("发布群", "Releases") }).click();
    await chat.getByText(say("已经发布。", "It is deployed.")).waitFor();
  });

  it("the footer: seconds and a line of one's own; model, tokens, cost and trace are folded", async () => {
    const text = say("用一句话介绍你自己", "Introduce yourself in a sentence");
    prompt(text, {
      text: say(
        "我是你们团队的助手，能查资料、记笔记、画图表。",
        "I am the assistant of your team.",
      ),
      firstDelayMs: 700,
      usage: { inputTokens: 1_840, outputTokens: 126 },
    });
    const chat = await newChat();
    await write(chat, text);
    await untilFinished(chat);
    const footer = cardIn(chat).locator("details.panel.bare", {
      hasText: say("由 AI 生成", "Generated by AI"),
    });
    expect(await footer.locator("summary").textContent()).toMatch(
      new RegExp(say("\\d 秒 · 由 AI 生成", "\\d s · Generated by AI")),
    );
    expect(await footer.locator(".panel-body").isVisible()).toBe(false);
    await footer.locator("summary").click();
    const details = footer.locator(".panel-body");
    expect(await details.textContent()).toMatch(/Claude Sonnet 5.5 · .*1,840.*126.* · ¥\d/);
    const trace = details.getByRole("link");
    const link = (await trace.getAttribute("href")) ?? "";
    expect(link).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/why\?q=[0-9a-f]{32}$/);
    await expect
      .poll(async () => await (await fetch(link)).text(), patience)
      .toContain("Answered after");
    await picture("card-footer", cardIn(chat));
  });

  it("thumbs in the last line, and a field for the reason once one is down", async () => {
    const text = say("推荐一家餐厅", "Recommend a restaurant");
    prompt(text, { text: say("楼下的面馆不错。", "The noodle shop downstairs is good.") });
    const chat = await newChat();
    await write(chat, text);
    await untilFinished(chat);
    const card = cardIn(chat);
    expect(await card.getByRole("textbox").count()).toBe(0);
    await card.locator('[data-use="rate_down"]').click();
    await page
      .locator(".toast-success", { hasText: say("谢谢你的反馈", "Thank you. You can") })
      .waitFor();
    const field = card.getByRole("textbox");
    await field.fill(say("那家店周一休息", "It is closed on Mondays"));
    await picture("card-rating", card);
    await field.press("Enter");
    await page.locator(".toast-success", { hasText: say("已记下", "Noted") }).waitFor();
  });

  it("an answer that has failed, with a button that tries again", async () => {
    const text = say("总结今天的会议", "Sum up today's meeting");
    prompt(
      text,
      ...Array.from({ length: 5 }, () => ({ fault: { kind: "status", status: 529 } }) as const),
    );
    prompt(say("请再试一次", "Please try again"), {
      text: say("会议决定周五上线。", "The launch is on Friday."),
    });
    const chat = await newChat();
    await write(chat, text);
    const again = cardIn(chat).getByRole("button", { name: say("再试一次", "Try again") });
    await again.waitFor();
    await picture("card-failed", cardIn(chat));
    await again.click();
    await chat.getByText(say("会议决定周五上线。", "The launch is on Friday.")).waitFor();
    await untilFinished(chat);
  });

  it("an answer that ended at a limit, with a button that continues", async () => {
    const text = say("写一份很长的报告", "Write a long report");
    prompt(text, {
      text: say("第一章：背景。第二章：现", "Chapter one: background. Chapter two: the"),
      stopReason: "max_tokens",
    });
    const chat = await newChat();
    await write(chat, text);
    const more = cardIn(chat).getByRole("button", { name: say("继续", "Continue") });
    await more.waitFor();
    await picture("card-limit", cardIn(chat));
    prompt(say("请继续", "Please continue"), {
      text: say("状。第三章：计划。", "present. Chapter three: the plan."),
    });
    await more.click();
    await chat.getByText(say("状。第三章：计划。", "present. Chapter three: the plan.")).waitFor();
    await untilFinished(chat);
  });

  it("a spent budget does not look like a failure", async () => {
    const chat = await newChat(ids.spender[language]);
    const text = say("第一个问题", "The first question");
    const usage = { inputTokens: 400, outputTokens: 200 };
    prompt(text, { text: say("第一个回答。", "The first answer."), usage });
    await write(chat, text);
    await untilFinished(chat);
    await write(chat, say("第二个问题", "The second question"));
    await chat.getByText(say("额度已用完", "is used up")).waitFor();
    const card = cardIn(chat);
    expect(await card.textContent()).not.toMatch(/⚠️|回答失败|Failed/);
    expect(await card.getByRole("button", { name: say("再试一次", "Try again") }).count()).toBe(0);
    await picture("card-budget", askedIn(chat), card);
  });

  it("an unknown command is answered with the nearest ones, without asking a model", async () => {
    const chat = await newChat();
    await write(chat, say("你好", "hello"));
    await untilFinished(chat);
    const before = modelServer.requests.length;
    await write(chat, "/hlep");
    const answer = chat.locator(".message.from-bot").last();
    await answer.getByText("/help").first().waitFor();
    expect(modelServer.requests.length).toBe(before);
    await picture("command-unknown", askedIn(chat), answer);
  });

  it("a message that waits says how many are before it", async () => {
    const key = `queue-${language}`;
    const text = say("导出三月的订单", "Export the orders of March");
    prompt(
      text,
      { calls: [call("export_orders", { week: say("三月", "March"), key })] },
      { text: say("导出完了。", "Exported.") },
    );
    const chat = await newChat();
    await write(chat, text);
    await cardIn(chat).waitFor();
    const next = say("另外，今天几号？", "And what is the date?");
    prompt(next, { text: say("今天是 26 号。", "It is the 26th.") });
    await write(chat, next);
    const line = chat.locator(".message.from-bot").last();
    await line.getByText(say("前面还有 1 条消息", "Messages before this one: 1")).waitFor();
    await picture("message-waits", askedIn(chat), line);
    await system.release(key);
    await chat.getByText(say("今天是 26 号。", "It is the 26th.")).waitFor();
    await untilFinished(chat);
  });

  it("an answer in a group knows what was said there since the one before", async () => {
    const { simulator } = playground;
    const other = simulator.addUser({ name: say("李雷", "Bob") });
    const asker = simulator.addUser({ name });
    const members = [asker.openId, other.openId];
    const group = simulator.addChat({ type: "group", name: say("上线讨论", "Launch"), members });
    const chat = await openChat(group.chatId);
    const says = async (from: string, text: string) =>
      await simulator.sendMessage({ appId: system.appId, chatId: group.chatId, from, text });
    await says(other.openId, say("上线改到周四上午十点", "The launch moves to Thursday, 10:00"));
    await says(
      asker.openId,
      say("那回归测试周三要做完", "Then the tests have to be done on Wednesday"),
    );
    const text = say("我们定了什么？", "What have we decided?");
    const answer = say(
      "刚才定了两件事：\n\n- 上线改到**周四 10:00**（李雷）\n- 回归测试**周三**做完（王芳）",
      "Two things:\n\n- The launch moves to **Thursday, 10:00** (Bob)\n- The tests are done on **Wednesday** (Ann Lee)",
    );
    prompt(text, { text: answer });
    await write(chat, text);
    await chat.getByText(say("做完（王芳）", "(Ann Lee)")).waitFor();
    await untilFinished(chat);
    expect(JSON.stringify(modelServer.requests.at(-1)?.messages)).toContain(
      say("上线改到周四上午十点", "The launch moves to Thursday"),
    );
    await picture("group-context", chat.locator(".message").first(), cardIn(chat));
  });

  it("formulas, task lists and aligned columns", async () => {
    const text = say("展示公式、清单和表格", "Show a formula, a list and a table");
    const answer = say(
      "### 本周小结\n\n增长率 $r = \\frac{x_2 - x_1}{x_1} \\times 100\\%$，其中 $x_1 = 1280$：\n\n| 项目 | 数量 | 占比 |\n|:---|---:|:---:|\n| 请求 | 1,870 | 46% |\n| 失败 | 12 | 0.6% |\n\n- [x] 核对数据\n- [ ] 发给团队",
      "### The week\n\nGrowth $r = \\frac{x_2 - x_1}{x_1} \\times 100\\%$ where $x_1 = 1280$:\n\n| what | count | share |\n|:---|---:|:---:|\n| requests | 1,870 | 46% |\n| failures | 12 | 0.6% |\n\n- [x] check the data\n- [ ] send it to the team",
    );
    prompt(text, { text: answer });
    const chat = await newChat();
    await write(chat, text);
    await chat.getByText(say("发给团队", "send it to the team")).waitFor();
    await untilFinished(chat);
    const card = cardIn(chat);
    expect(await card.textContent()).toMatch(/r = \(?x₂ - x₁\)?\s*[/⁄]\s*x₁ × 100%/);
    expect(await card.textContent()).not.toContain("[x]");
    const aligned = card.locator("td", { hasText: "1,870" });
    expect(
      await aligned.evaluate((cell) => cell.computedStyleMap().get("text-align")?.toString()),
    ).toBe("right");
    await picture("card-markdown", card);
  });

  // Their suites show the same; here it takes ten seconds of waiting.
  it.runIf(isForDocuments)("helpers at work, a hand-over, and a team", async () => {
    const chat = await newChat();
    await write(chat, say("派两个助手：绿茶和红茶", "send two helpers: tea and coffee"));
    const helper = say(
      /helper: 看看红茶 · [1-9] 秒/.source,
      /helper: Look at coffee · [1-9] s/.source,
    );
    await cardIn(chat).getByText(new RegExp(helper)).first().waitFor();
    await picture("agents-helpers", cardIn(chat));
    await untilFinished(chat);
    await write(
      chat,
      say("请专家看一下：周五要扩容吗？", "ask the expert: do we need more machines on Friday?"),
    );
    await chat.getByText(say("我是专家", "I am the expert")).waitFor();
    await untilFinished(chat);
    await picture("agents-hand-over", cardIn(chat));
    const team = await newChat();
    await write(team, say("请团队写一句开场白", "ask the team for a first sentence"));
    await cardIn(team).getByText(say("改短", "Shorter")).last().waitFor();
    await untilFinished(team);
    expect(await cardIn(team).textContent()).not.toContain("APPROVED");
    await picture("agents-team", cardIn(team));
  });
});
