// WCAG AA of pages in a real Chromium, light and dark; ends with 1 where axe-core finds a violation.
//   npm install axe-core playwright-core && node docs/axe.js PAGE.html…
const { chromium } = require("playwright-core");
const axe = require("fs").readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const runOnly = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];

(async () => {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox"] });
  for (const colorScheme of ["light", "dark"]) {
    for (const path of process.argv.slice(2)) {
      const page = await (await browser.newContext({ colorScheme, bypassCSP: true })).newPage();
      await page.goto("file://" + require("path").resolve(path));
      await page.evaluate(axe);
      const { violations } = await page.evaluate((runOnly) => axe.run(document, { runOnly }), runOnly);
      for (const x of violations) console.log(colorScheme, path, x.id, x.nodes.length, String(x.nodes[0].target));
      if (violations.length) process.exitCode = 1;
      await page.close();
    }
  }
  await browser.close();
})();
