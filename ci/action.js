// The action: setup.sh at its step, and check.sh at the end of the job.
const { spawnSync } = require("node:child_process");
const { appendFileSync } = require("node:fs");
const { join } = require("node:path");

const isPost = process.env.STATE_started === "true";
const check = process.env.INPUT_CHECK ?? "false";

function run(script, variables) {
  const env = { ...process.env, ...variables };
  const { status, error } = spawnSync("bash", [join(__dirname, script)], { stdio: "inherit", env });
  if (error) throw error;
  process.exitCode = status ?? 1;
}

if (!isPost) {
  appendFileSync(process.env.GITHUB_STATE, "started=true\n");
  run("setup.sh", {
    SOFTROCE_PACKAGE: process.env.INPUT_PACKAGE ?? "",
    SOFTROCE_OPTIONS: process.env.INPUT_OPTIONS ?? "",
    SOFTROCE_CHECK: check,
  });
} else if (check === "true") {
  run("check.sh", {});
}
