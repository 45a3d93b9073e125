import type { LarklineConfig } from "@larkline/config";
import { ok, problem, skipped, warning, type Finding } from "./finding.ts";

/** A runner and the tools that its processes offer. */
export interface AnnouncedRunner {
  runner: string;
  instances: number;
  /** Absent: only known to be ready. */
  tools?: readonly string[];
}

/** What runs. Absent: it could not be found out. */
export interface Running {
  /** Whether the ingress of this machine is ready; absent: nobody answers there. */
  ingress?: boolean;
  workers?: number;
  runners?: readonly AnnouncedRunner[];
}

/** Asks a process of this machine whether it is ready; undefined when nobody answers. */
export async function readyOf(url: string, signal: AbortSignal): Promise<boolean | undefined> {
  try {
    const response = await fetch(url, { signal, redirect: "error" });
    await response.body?.cancel();
    return response.status === 200;
  } catch {
    return undefined;
  }
}

function ingressFinding(ready: boolean | undefined): Finding {
  if (ready === true) return ok("running.ingress", { zh: "ingress 已就绪", en: "The ingress is ready" });
  if (ready === undefined) {
    return skipped("running.ingress", {
      zh: "本机没有 ingress，未检查",
      en: "No ingress on this machine, not checked",
    });
  }
  return problem(
    "running.ingress",
    { zh: "ingress 未就绪", en: "The ingress is not ready" },
    { zh: "查看它的日志；通常是 Redis 没有应答。", en: "See its log; usually Redis does not answer." },
  );
}

function workerFinding(workers: number | undefined): Finding {
  if (workers === undefined) {
    return skipped("running.workers", { zh: "agent-worker 未检查", en: "The agent-workers were not checked" });
  }
  if (workers > 0) {
    return ok("running.workers", { zh: `${workers} 个 agent-worker 在运行`, en: `${workers} agent-worker(s) alive` });
  }
  return problem(
    "running.workers",
    { zh: "没有运行中的 agent-worker，消息不会得到回答", en: "No agent-worker is alive: messages are not answered" },
    {
      zh: "启动一个 agent-worker，并核对它的 REDIS_URL 和 REDIS_NAMESPACE。",
      en: "Start an agent-worker, with this REDIS_URL and REDIS_NAMESPACE.",
    },
  );
}

function runnerFindings(runners: readonly AnnouncedRunner[] | undefined): Finding[] {
  if (runners === undefined) {
    return [skipped("running.runners", { zh: "tool-runner 未检查", en: "The tool-runners were not checked" })];
  }
  if (runners.length === 0) {
    return [
      warning(
        "running.runners",
        { zh: "没有 tool-runner，机器人无法使用工具", en: "No tool-runner is announced: the bot has no tools" },
        {
          zh: "启动一个 tool-runner，并核对它的 REDIS_URL 和 REDIS_NAMESPACE。",
          en: "Start a tool-runner, with this REDIS_URL and REDIS_NAMESPACE.",
        },
      ),
    ];
  }
  return runners.map(({ runner, instances, tools }) => {
    const list =
      tools === undefined ? { zh: "", en: "" } : { zh: `：${tools.join("、")}`, en: `: ${tools.join(", ")}` };
    return ok("running.runners", {
      zh: `tool-runner ${runner}（${instances} 个进程）${list.zh}`,
      en: `tool-runner ${runner} (${instances} process(es))${list.en}`,
    });
  });
}

/** Tools that agents name and nobody offers. */
function toolFindings(runners: readonly AnnouncedRunner[] | undefined, config: LarklineConfig | undefined): Finding[] {
  if (config === undefined || runners?.every(({ tools }) => tools !== undefined) !== true) return [];
  const offered = new Set(runners.flatMap(({ tools }) => tools ?? []));
  const wanted = new Set(Object.values(config.agents).flatMap(({ tools }) => tools ?? []));
  const missing = [...wanted].filter((tool) => !offered.has(tool));
  if (missing.length === 0) return [];
  const names = missing.join(", ");
  return [
    problem(
      "running.tools",
      { zh: `配置的工具没有 tool-runner 提供：${names}`, en: `No tool-runner offers the configured tools: ${names}` },
      {
        zh: "启动提供它们的 tool-runner（RUNNER_TOOLS），或从 larkline.config.ts 中删除。",
        en: "Start a tool-runner that offers them (RUNNER_TOOLS), or remove them from larkline.config.ts.",
      },
    ),
  ];
}

/** Nothing at all is no problem of the deployment: it was not started. */
export function runningFindings(running: Running, config: LarklineConfig | undefined): Finding[] {
  const { ingress, workers = 0, runners = [] } = running;
  if (ingress === undefined && workers === 0 && runners.length === 0) {
    return [
      warning(
        "running",
        { zh: "Larkline 没有在运行", en: "Larkline is not running" },
        { zh: "运行 npm start。", en: "Run npm start." },
      ),
    ];
  }
  return [
    ingressFinding(ingress),
    workerFinding(running.workers),
    ...runnerFindings(running.runners),
    ...toolFindings(running.runners, config),
  ];
}
