#!/usr/bin/env node
// `npx larkline-create <folder>`: makes a folder with a tool, its test and a configuration, which a checkout or an
// image of Larkline mounts. `npm run pack` puts the tarball of the tool kit beside this file.
import { copyFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

/** What was asked for cannot be made: only the message is shown. */
class Refusal extends Error {}

const here = dirname(fileURLToPath(import.meta.url));
const ofTerminal = /^zh/i.test(
  process.env.LC_ALL || process.env.LC_MESSAGES || process.env.LANG || "",
)
  ? "zh"
  : "en";

const says = {
  en: {
    usage: `npx larkline-create <folder> [--lang zh|en]

Makes a folder with a tool for Larkline, its test, a configuration and a README.

  --lang zh|en   language of the README and of this program; that of the terminal unless given
  --help         this text`,
    oneFolder: "Name one folder, such as: npx larkline-create my-bot",
    language: "--lang is zh or en.",
    notEmpty: (folder) => `${folder} is not empty: nothing was written. Name a new folder.`,
    notFolder: (folder) => `${folder} is not a folder that can be written to: nothing was written.`,
    badPath: (folder) =>
      `${folder} has a comma or a line break in its path, which RUNNER_TOOLS cannot hold.`,
    ready: (folder) => `${folder} has a tool, its test and a configuration:`,
    mount:
      "Then start Larkline with it, in a checkout, or by `npx larkline` in the place of `npm start`:",
    try: 'Ask "roll a die" there. README.md says how to mount it into images.',
  },
  zh: {
    usage: `npx larkline-create <folder> [--lang zh|en]

创建一个文件夹，内有 Larkline 的工具、它的测试、配置和 README。

  --lang zh|en   README 和本程序的语言；不写时按终端的语言
  --help         显示本说明`,
    oneFolder: "请指定一个文件夹，例如：npx larkline-create my-bot",
    language: "--lang 只能是 zh 或 en。",
    notEmpty: (folder) => `${folder} 不是空的：没有写入任何内容。请换一个新文件夹。`,
    notFolder: (folder) => `${folder} 不是可以写入的文件夹：没有写入任何内容。`,
    badPath: (folder) => `${folder} 的路径里有逗号或换行，RUNNER_TOOLS 无法表示。`,
    ready: (folder) => `${folder} 里有工具、它的测试和配置：`,
    mount: "然后用它启动 Larkline：在检出目录里，或用 `npx larkline` 代替 `npm start`：",
    try: "在那里说“掷骰子”。README.md 说明如何挂载到镜像。",
  },
};

async function main(args) {
  const { folder, language, help } = readArguments(args);
  const words = says[language];
  if (help) return console.log(words.usage);
  const place = resolve(folder);
  if (/[,\r\n]/.test(place)) throw new Refusal(words.badPath(place));
  await makeFolder(place, folder, words);
  for (const [path, text] of Object.entries(await filesFor(place, language))) {
    await mkdir(dirname(join(place, path)), { recursive: true });
    await writeFile(join(place, path), text, { flag: "wx" });
  }
  const kit = await toolKit();
  await copyFile(join(here, kit), join(place, kit));
  console.log(`${words.ready(folder)}

  cd ${quoted(folder)}
  npm install
  npm test

${words.mount}

  ${mountCommand(place)}

${words.try}`);
}

function readArguments(args) {
  const options = { help: { type: "boolean" }, lang: { type: "string" } };
  const { values, positionals } = parsed(args, options);
  const language = values.lang ?? ofTerminal;
  if (!Object.hasOwn(says, language)) throw new Refusal(says[ofTerminal].language);
  if (values.help !== true && positionals.length !== 1) throw new Refusal(says[language].oneFolder);
  return { folder: positionals[0], language, help: values.help === true };
}

function parsed(args, options) {
  try {
    return parseArgs({ args, options, allowPositionals: true });
  } catch (error) {
    throw new Refusal(`${error.message}\n\n${says[ofTerminal].usage}`);
  }
}

/** Makes the folder unless it is there and empty. */
async function makeFolder(place, shown, words) {
  let names;
  try {
    await mkdir(place, { recursive: true });
    names = await readdir(place);
  } catch {
    throw new Refusal(words.notFolder(shown));
  }
  if (names.length > 0) throw new Refusal(words.notEmpty(shown));
}

/** The name of the tarball beside this file. */
async function toolKit() {
  const kit = (await readdir(here)).find((name) => /^larkline-tool-kit-.*\.tgz$/.test(name));
  if (kit === undefined) {
    throw new Refusal("the tool kit is not beside this program: build it by `npm run pack`");
  }
  return kit;
}

function mountCommand(place) {
  const config = join(place, "larkline.config.ts");
  const tools = `@larkline/example-tools,${join(place, "tools", "index.ts")}`;
  return `LARKLINE_CONFIG=${quoted(config)} RUNNER_TOOLS=${quoted(tools)} npm start`;
}

/** As the shell takes it. */
function quoted(text) {
  return /^[\w./:@,+=-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** The texts of the new folder, by path. */
async function filesFor(place, language) {
  const { devDependencies } = JSON.parse(
    await readFile(join(here, "package.json"), "utf8"),
  ).larkline;
  const name = basename(place);
  const manifest = {
    name: /^[a-z0-9][a-z0-9._-]*$/.test(name) ? name : "larkline-tools",
    private: true,
    type: "module",
    scripts: { check: "tsc --noEmit", test: "tsc && cd js && node --test" },
    dependencies: { "@larkline/tool-kit": `file:${await toolKit()}` },
    devDependencies,
    engines: { node: ">=20" },
  };
  return {
    "package.json": json(manifest),
    "tsconfig.json": json({ compilerOptions, include: ["*.ts", "tools"] }),
    ".gitignore": "node_modules/\njs/\n",
    "larkline.config.ts": config[language](name),
    "tools/index.ts": list,
    "tools/roll-dice.ts": tool,
    "tools/roll-dice.test.ts": toolTest,
    "README.md": readme[language](name, mountCommand(place)),
    "AGENTS.md": agents[language],
  };
}

function json(value) {
  return `${JSON.stringify(value, undefined, 2)}\n`;
}

/** Node 24, on which Larkline runs, strips the types; the compiler is for the editor, and for tests on older ones. */
const compilerOptions = {
  strict: true,
  target: "es2023",
  module: "nodenext",
  types: ["node"],
  erasableSyntaxOnly: true,
  verbatimModuleSyntax: true,
  rewriteRelativeImportExtensions: true,
  skipLibCheck: true,
  rootDir: ".",
  outDir: "js",
};

const configWith = (comment, instructions) => `import { defineConfig } from "@larkline/tool-kit";

// ${comment}
export default defineConfig({
  agents: {
    default: {
      instructions: ${JSON.stringify(instructions)},
    },
  },
});
`;

const config = {
  en: (name) =>
    configWith("The editor knows every key and what it does.", `You are ${name}. Answer briefly.`),
  zh: (name) => configWith("编辑器知道每个键及其作用。", `你是${name}。请简短回答。`),
};

const list = `import rollDice from "./roll-dice.ts";

export default [rollDice];
`;

const tool = `import { defineTool } from "@larkline/tool-kit";

export default defineTool({
  name: "roll_dice",
  description: "Rolls a die with the given number of sides.",
  input: {
    type: "object",
    properties: { sides: { type: "integer", minimum: 2, maximum: 1000 } },
    required: ["sides"],
  },
  effect: "pure", // changes nothing, so a call may run twice
  run: ({ sides }) => 1 + Math.floor(Math.random() * sides),
});
`;

const toolTest = `import assert from "node:assert/strict";
import { test } from "node:test";
import { runTool } from "@larkline/tool-kit";
import rollDice from "./roll-dice.ts";

test("a die shows one of its sides", async () => {
  const rolled = await runTool(rollDice, { argumentsText: '{"sides": 2}' });
  assert.ok(rolled.ok && (rolled.result === 1 || rolled.result === 2));
});

test("a die has at least two sides", async () => {
  const refused = await runTool(rollDice, { argumentsText: '{"sides": 1}' });
  assert.ok(!refused.ok && refused.error.includes("sides must be >= 2"));
});
`;

const docs = "https://github.com/larkline/larkline/blob/main/docs";

/** For coding agents that work in the folder. */
const agents = {
  en: `# For coding agents

This folder has tools and a configuration for Larkline, which runs LLM agents behind a Feishu bot.

- A tool is a file in \`tools/\` with \`export default defineTool({...})\`, and a line in \`tools/index.ts\`. Copy \`tools/roll-dice.ts\`.
- \`effect\` says whether a call may run twice: \`pure\` changes nothing, \`idempotent\` may be repeated, \`once\` must not be: give the other system \`context.callId\` as its key.
- A tool reads no variable that its \`env\` does not name, and returns JSON. What it throws is what the model reads: say what to do.
- Each tool has a test with \`runTool\`, as \`tools/roll-dice.test.ts\` has. Run \`npm test\` before you are done; it compiles as well.
- Types are stripped, not compiled: no enums, no parameter properties; imports name the file with \`.ts\`.
- \`larkline.config.ts\` is typed: the editor and \`npm run check\` know each key. Secrets belong in the environment.
- While Larkline runs it takes a changed file over by itself, and says why where it cannot.
- Everything else: ${docs}/tools.md and ${docs}/configuration.md.
`,
  zh: `# 写给编程智能体

这个文件夹有 Larkline 的工具和配置；Larkline 在飞书机器人背后运行 LLM 智能体。

- 工具是 \`tools/\` 里带 \`export default defineTool({...})\` 的一个文件，加上 \`tools/index.ts\` 里的一行。以 \`tools/roll-dice.ts\` 为样例。
- \`effect\` 说明调用能否运行两次：\`pure\` 不改变任何东西，\`idempotent\` 可以重复，\`once\` 不可以：把 \`context.callId\` 作为键交给对方系统。
- 工具读不到 \`env\` 没有列出的变量，返回 JSON。它抛出的内容就是模型读到的：请写明该怎么做。
- 每个工具都有用 \`runTool\` 写的测试，如 \`tools/roll-dice.test.ts\`。完成之前运行 \`npm test\`，它也会编译。
- 类型只是被去掉，不经编译：不要用 enum 和参数属性；import 的文件名带 \`.ts\`。
- \`larkline.config.ts\` 有类型：编辑器和 \`npm run check\` 知道每个键。机密放在环境变量里。
- Larkline 运行时会自己换上改动过的文件，换不了时说明原因。
- 其余内容：${docs}/zh/tools.md 和 ${docs}/zh/configuration.md。
`,
};

const readme = {
  en: (name, mount) => `# ${name}

A tool and a configuration for [Larkline](https://github.com/larkline/larkline).

\`\`\`sh
npm install
npm test        # compiles, and runs the tests of the tools
npm run check   # types only
\`\`\`

- \`larkline.config.ts\`: instructions, models, limits, permissions ([configuration](${docs}/configuration.md)).
- \`tools/index.ts\`: the list of the tools; \`tools/roll-dice.ts\` is the first one ([tools](${docs}/tools.md)).

## Mount it

In a checkout of Larkline:

\`\`\`sh
${mount}
\`\`\`

With images, mount this folder read-only and give \`LARKLINE_CONFIG\` to every process, \`RUNNER_TOOLS\` to \`tool-runner\`:

\`\`\`sh
docker run --mount type=bind,src="$PWD",dst=/bot,readonly \\
  --env LARKLINE_CONFIG=/bot/larkline.config.ts --env RUNNER_TOOLS=/bot/tools/index.ts ... larkline/tool-runner
\`\`\`
`,
  zh: (name, mount) => `# ${name}

[Larkline](https://github.com/larkline/larkline) 的一个工具和一份配置。

\`\`\`sh
npm install
npm test        # 编译，并运行工具的测试
npm run check   # 只检查类型
\`\`\`

- \`larkline.config.ts\`：指令、模型、限额、权限（[配置](${docs}/zh/configuration.md)）。
- \`tools/index.ts\`：工具列表；\`tools/roll-dice.ts\` 是第一个（[工具](${docs}/zh/tools.md)）。

## 挂载

在 Larkline 的检出目录里：

\`\`\`sh
${mount}
\`\`\`

使用镜像时，以只读方式挂载本文件夹，给每个进程 \`LARKLINE_CONFIG\`，给 \`tool-runner\` 再加 \`RUNNER_TOOLS\`：

\`\`\`sh
docker run --mount type=bind,src="$PWD",dst=/bot,readonly \\
  --env LARKLINE_CONFIG=/bot/larkline.config.ts --env RUNNER_TOOLS=/bot/tools/index.ts ... larkline/tool-runner
\`\`\`
`,
};

try {
  await main(process.argv.slice(2));
} catch (error) {
  console.error(error instanceof Refusal ? error.message : error);
  process.exitCode = 1;
}
